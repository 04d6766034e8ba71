"""The stand-in's controllers of work: Jobs, RayJobs as KubeRay's rayjob_controller.go has them, and Kueue's queue."""

from typing import Any

from tests.commands.k8s.stand_in.pods import make_pod
from tests.commands.k8s.stand_in.store import GPU, Object, RefusedError, Store, gpus, is_active, labels_of

UID = "batch.kubernetes.io/controller-uid"
QUEUE = "kueue.x-k8s.io/queue-name"
FOREVER = float("inf")


def is_queued(store: Store, each: Object) -> bool:
    waits = each["kind"] in ("Job", "RayJob") and QUEUE in labels_of(each)
    return waits and "kueue.x-k8s.io" not in store.without


def queue(store: Store) -> None:
    """Kueue starts suspended jobs for whose GPUs there is room, and says of the others why not."""
    for cluster_queue in store.of("ClusterQueue")[:1]:
        resources = cluster_queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
        (limit,) = [int(one["nominalQuota"]) for one in resources if one["name"] == GPU]
        for each in [*store.of("Job"), *store.of("RayJob")]:
            if is_queued(store, each) and each["spec"].get("suspend"):
                _reserve(store, each, limit)


def _reserve(store: Store, job: Object, limit: int) -> None:
    wanted, used = _all_gpus(job), sum(gpus(each) for each in store.of("Pod") if is_active(each))
    lack = f"couldn't assign flavors to pod set gpu: insufficient {{}} for {GPU} in flavor restrain-gpu, {{}}"
    if wanted > limit:
        requests = f"previously considered podsets requests (0) + current podset request ({wanted})"
        text = lack.format("quota", f"{requests} > maximum capacity ({limit})")
    elif used + wanted > limit:
        text = lack.format("unused quota", f"{used + wanted - limit} more needed")
    else:
        text, job["spec"]["suspend"] = "Quota reserved in ClusterQueue restrain", False
    known = {key: job["metadata"][key] for key in ("name", "uid")}
    reserved = {"type": "QuotaReserved", "status": str(not job["spec"]["suspend"]), "message": text}
    name = f"{job['kind'].lower()}-{known['name']}"
    owners = [{"kind": job["kind"], **known}]
    store.put("Workload", name, ownerReferences=owners, status={"conditions": [reserved]})


def _all_gpus(job: Object) -> int:
    if job["kind"] == "RayJob":
        return _workers(job)["replicas"] * gpus(_workers(job)["template"])
    return int(job["spec"].get("parallelism", 1)) * gpus(job["spec"]["template"])


def advance_job(store: Store, job: Object) -> None:
    """One round of a Job that has not ended."""
    spec, status = job["spec"], job.setdefault("status", {})
    if any(each["type"] in ("Complete", "Failed") for each in status.get("conditions", [])):
        return
    status["conditions"] = [{"type": "Suspended", "status": "True"}] if spec.get("suspend") else []
    if spec.get("suspend"):
        return
    # The clock of the Job itself runs as soon as it is not suspended, whether it has pods or not.
    if store.clock - job.setdefault("_start", store.clock) > spec.get("activeDeadlineSeconds", FOREVER):
        _end(store, job, "Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
        return
    spec.setdefault("selector", {"matchLabels": {UID: job["metadata"]["uid"]}})
    own = store.owned(job)
    if len(_indexes(own, "Succeeded")) == spec.get("completions", 1):
        _end(store, job, "Complete", "CompletionsReached", "Reached expected number of succeeded pods")
        return
    failed = [each for each in own if each["status"]["phase"] == "Failed"]
    if failed and (reason := _final(spec, failed)):
        _end(store, job, "Failed", *reason)
        return
    _fill(store, job, own)
    alive = [each for each in own if "deletionTimestamp" not in each["metadata"]]
    status["ready"] = sum(each["status"]["phase"] == "Running" for each in alive)


def _indexes(pods: list[Object], *phases: str) -> set[int]:
    return {each["_index"] for each in pods if each["status"]["phase"] in phases}


def _fill(store: Store, job: Object, own: list[Object]) -> None:
    """A pod for each index without one. One that is being deleted is replaced at once, or once it has ended."""
    spec, name = job["spec"], job["metadata"]["name"]
    awaited = spec.get("podReplacementPolicy") == "Failed"
    held = [each for each in own if awaited or "deletionTimestamp" not in each["metadata"]]
    there = _indexes(held, "Pending", "Running", "Succeeded")
    room = spec.get("parallelism", 1) - len(_indexes(held, "Pending", "Running"))
    for index in [each for each in range(spec.get("completions", 1)) if each not in there][:room]:
        part = f"-{index}" if spec.get("completionMode") == "Indexed" else ""
        labels = {"batch.kubernetes.io/job-name": name, UID: job["metadata"]["uid"]}
        try:
            pod = make_pod(store, job, f"{name}{part}-{next(store.numbers):05}", spec["template"], labels)
            pod["_index"] = index
        except RefusedError as error:
            store.event(job, "FailedCreate", f"Error creating: {error}")


def _final(spec: Object, failed: list[Object]) -> tuple[str, str] | None:
    """Reason and message, where the pods that failed are the end of the Job."""
    rules = spec.get("podFailurePolicy", {}).get("rules", [])
    final = [code for rule in rules if rule["action"] == "FailJob" for code in rule["onExitCodes"]["values"]]
    code, name = failed[-1]["_code"], failed[-1]["metadata"]["name"]
    if code in final:
        text = f"Container main for pod restrain/{name} failed with exit code {code} matching FailJob rule at index 1"
        return "PodFailurePolicy", text
    if "backoffLimitPerIndex" in spec:
        indexes = [each["_index"] for each in failed]
        if max(map(indexes.count, indexes)) > spec["backoffLimitPerIndex"]:
            return "FailedIndexes", "Job has failed indexes"
    elif len(failed) > spec.get("backoffLimit", 6):
        return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    return None


def _end(store: Store, job: Object, kind: str, reason: str, message: str) -> None:
    before = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}[kind]
    ended = {"status": "True", "reason": reason, "message": message}
    job["status"] = {"conditions": [{"type": before, **ended}, {"type": kind, **ended}]}
    for pod in filter(is_active, store.owned(job)):
        store.drop("Pod", pod["metadata"]["name"])


def advance_ray_job(store: Store, job: Object) -> None:
    """One round of a RayJob. While it is suspended it has no start, and each retry gets a new one."""
    spec, status = job["spec"], job.setdefault("status", {"failed": 0})
    if status.get("jobDeploymentStatus") in ("Complete", "Failed"):
        return
    if spec.get("suspend"):
        status["jobDeploymentStatus"] = "Suspended"
        return
    if status.get("jobDeploymentStatus") in (None, "Suspended", "Retrying"):
        _start_ray(store, job)
    waited, running = store.clock - job["_start"], status["jobDeploymentStatus"] == "Running"
    # In the controller's order; the first is never tried again.
    if waited > spec.get("activeDeadlineSeconds", FOREVER):
        _ray_failed(job, "DeadlineExceeded", "The RayJob has passed the activeDeadlineSeconds.")
    elif not running and waited > spec.get("preRunningDeadlineSeconds", FOREVER):
        _ray_failed(job, "PreRunningDeadlineExceeded", "The RayJob has passed the preRunningDeadlineSeconds.")
    elif running:
        _follow_submitter(store, job)
    else:
        _wait_for_cluster(store, job)


def _start_ray(store: Store, job: Object) -> None:
    name = job["metadata"]["name"]
    job["status"] |= {"jobDeploymentStatus": "Initializing", "jobStatus": "", "reason": "", "message": ""}
    job["_start"], job["_cluster"] = store.clock, f"{name}-{next(store.numbers):05}"
    for pod in store.owned(job):
        store.drop("Pod", pod["metadata"]["name"])
    if store.find("Job", name):
        store.drop("Job", name)


def _wait_for_cluster(store: Store, job: Object) -> None:
    """The head and the workers are made; once all of them run, the submitter's Job is."""
    cluster, name = job["_cluster"], job["metadata"]["name"]
    templates = {f"{cluster}-head": job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]}
    numbers = range(_workers(job)["replicas"])
    templates |= {f"{cluster}-gpu-worker-{number}": _workers(job)["template"] for number in numbers}
    for pod, template in templates.items():
        role = "Head" if pod.endswith("-head") else "Worker"
        try:
            if not store.find("Pod", pod):
                make_pod(store, job, pod, template, {})
        except RefusedError as error:
            store.event(cluster, f"FailedToCreate{role}Pod", f"Failed to create {role.lower()} Pod restrain/, {error}")
    own = store.owned(job)
    if len(own) == len(templates) and all(each["status"]["phase"] == "Running" for each in own):
        job["status"] |= {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}
        store.put("Job", name, spec={"backoffLimit": 0, "template": job["spec"]["submitterPodTemplate"]})


def _follow_submitter(store: Store, job: Object) -> None:
    submitter: Any = store.find("Job", job["metadata"]["name"])
    found = {each["type"] for each in submitter.get("status", {}).get("conditions", [])}
    if "Complete" in found:
        job["status"] |= {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
        for pod in store.owned(job) if job["spec"].get("shutdownAfterJobFinishes") else ():
            store.drop("Pod", pod["metadata"]["name"])
    elif "Failed" in found:
        _ray_failed(job, "AppFailed", "Job entrypoint command failed with exit code 1")


def _ray_failed(job: Object, reason: str, message: str) -> None:
    status = job["status"]
    status["failed"] += 1
    again = reason != "DeadlineExceeded" and status["failed"] <= job["spec"].get("backoffLimit", 0)
    status |= {"jobStatus": "FAILED", "jobDeploymentStatus": "Retrying" if again else "Failed"}
    status |= {"reason": reason, "message": message}


def _workers(job: Object) -> Any:
    return job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
