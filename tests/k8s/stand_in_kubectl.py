"""Stands for kubectl where `run.sh` is tested: objects in a file, jobs that end as the test says, every call noted.

`cluster.json` beside it holds `namespaces`, `jobs` (resource to its state, labels and coming states) and `calls`;
`files` are the objects of each manifest. It imports little, because it is started for every word to the cluster.
"""

import json
import sys

FILE = f"{sys.path[0]}/cluster.json"
# What a status looks like through run.sh's jsonpath; a queued job of Kueue's has the condition Suspended.
SEEN = {
    "job": {"running": "Suspended", "complete": "SuccessCriteriaMet Complete", "failed": "FailureTarget Failed"},
    "rayjob": {"running": "RUNNING Running", "retrying": "FAILED Retrying", "complete": "SUCCEEDED Complete"}
    | {"failed": "FAILED Failed", "stopped": "STOPPED Complete"},
}


def main(words, cluster):
    cluster["calls"].append(" ".join(words))
    if words[:2] == ["get", "namespace"]:
        return "" if words[2] in cluster["namespaces"] else fail(f'namespaces "{words[2]}" not found')
    if words[:3] == ["apply", "--server-side", "-f"]:
        return "\n".join(apply(each, cluster) for each in cluster["files"][words[3]])
    assert words[0] == "-n", words
    assert words[2] == "get", words
    if cluster.get("down"):
        fail("Unable to connect to the server")
    if words[3] == "jobs":
        return "\n".join(labelled(words[words.index("-l") + 1], cluster))
    assert "--ignore-not-found" in words
    return look(words[3], cluster["jobs"])


def apply(each, cluster):
    resource = f"{each['kind'].lower()}/{each['metadata']['name']}"
    if each["kind"] in ("Job", "RayJob"):
        if resource in cluster["jobs"]:
            fail(f"The {resource} is invalid: field is immutable")
        coming = cluster["ends"].get(resource, ["complete"])
        labels = each["metadata"].get("labels", {})
        cluster["jobs"][resource] = {"state": "running", "coming": coming, "labels": labels}
    return f"{resource} serverside-applied"


def look(resource, jobs):
    """A job goes on by one state each time that it is looked at."""
    if resource not in jobs:
        return ""
    job = jobs[resource]
    kind, name = resource.split("/")
    seen = f"{name} {SEEN[kind][job['state']]}"
    if job["coming"]:
        job["state"] = job["coming"].pop(0)
    return seen


def labelled(selector, cluster):
    key, value = selector.split("=")
    found = [each for each, job in cluster["jobs"].items() if job["labels"].get(key) == value]
    return [look(each, cluster["jobs"]) for each in found]


def fail(text):
    sys.exit(f"Error from server: {text}")


if __name__ == "__main__":
    with open(FILE) as file:
        state = json.load(file)
    try:
        print(main(sys.argv[1:], state))
    finally:
        with open(FILE, "w") as file:
            json.dump(state, file)
