"""One's own task on nodes of 8 H100 without internet: nothing is fetched, every name is there, what to copy is told."""

import tempfile
from functools import cache
from pathlib import Path

import pytest
import yaml

from restrain_openrlhf.commands.k8s.stages import stage_of
from tests.commands.k8s.experiments import IMAGE, render
from tests.commands.k8s.manifests import needs_kustomize, of_kind, pick, pods, worker_gpus
from tests.commands.k8s.schemas import problems
from tests.commands.k8s.test_names import command_lines, unmounted, unresolved

NAME, CA = "dapo14k-qwen3-4b-restrain", "/etc/restrain-ca/ca.pem"
VARIABLES = {"HF_ENDPOINT": "http://127.0.0.1:9", "NO_PROXY": ".svc,10.0.0.0/8"}
SETTINGS = {"overlay": "multi-node-h100", "environment": VARIABLES, "ca_certificate": "company-ca/ca.pem"}
OWN = {"actor.model_name_or_path": "/mnt/models/Qwen3-4B-Base", "data.prompt_dataset": "data/mine.jsonl"}
GRADED = ["evaluation", "regrade"]


@cache
def walk(benchmarks):
    """What render prints, `run.sh`, and all objects."""
    needs_kustomize()
    with tempfile.TemporaryDirectory() as made:
        (file := Path(made, "cluster.yaml")).write_text(yaml.safe_dump(SETTINGS))
        sets = [word for key, value in OWN.items() for word in ("--set", f"openrlhf.{key}={value}")]
        words = ("--image", IMAGE, "--cluster", file, "--benchmarks", benchmarks, *sets)
        done = render(*words, out=Path(made, "out"), overlay="multi-node-h100")
        assert done.returncode == 0, done.stderr
        texts = [path.read_text() for path in sorted(Path(made, "out").glob("*.yaml"))]
        script = Path(made, "out", "run.sh").read_text().partition("\nready\n")[2]
    return done.stderr, script, [each for text in texts for each in yaml.safe_load_all(text)]


@pytest.mark.parametrize(("benchmarks", "graded"), [("mine=data/held_out.jsonl", GRADED), ("none", [])])
def test_the_steps_fetch_nothing_and_what_to_copy_is_printed(benchmarks, graded):
    told, script, objects = walk(benchmarks)
    steps = [line.split()[1][3:].removesuffix(".yaml") for line in script.splitlines() if ".yaml" in line]
    offline = ["reference", "merge-reference", "subset-reference", "premise"]
    assert steps == ["admin", "platform", "claims", "files", "gpu-check", *offline, "train", *graded]
    copied = [
        "/mnt/models/Qwen3-4B-Base",
        "/mnt/work/data/mine.jsonl",
        *["/mnt/work/data/held_out.jsonl"][: len(graded)],
    ]
    locals_of = [path.removeprefix("/mnt/models/").removeprefix("/mnt/work/") for path in copied]
    commands = [
        f"  kubectl -n restrain cp {own} files-{NAME}:{path}" for own, path in zip(locals_of, copied, strict=True)
    ]
    assert [line for line in told.splitlines() if " cp " in line] == commands
    found = [problem for _, words in command_lines(objects) for problem in unresolved(words)]
    assert [*found, *unmounted(objects)] == []
    assert worker_gpus(pick(objects, "RayJob", f"gpu-check-{NAME}")) == worker_gpus(
        pick(objects, "RayJob", f"train-{NAME}")
    )


def test_every_pod_has_the_variables_and_the_certificates_and_nothing_else_is_missing():
    _, _, objects = walk("mine=data/held_out.jsonl")
    there = {(each["kind"], each["metadata"]["name"]) for each in objects}
    for pod in pods(objects):
        for each in pod.containers:
            env = {one["name"]: one.get("value") for one in each["env"]}
            assert env | VARIABLES | {"SSL_CERT_FILE": CA, "REQUESTS_CA_BUNDLE": CA, "CURL_CA_BUNDLE": CA} == env
            assert len(env) == len(each["env"])
        volumes = pod.spec["volumes"]
        there_not = {("ConfigMap", each["configMap"]["name"]) for each in volumes if "configMap" in each}
        there_not |= {
            ("PersistentVolumeClaim", each["persistentVolumeClaim"]["claimName"])
            for each in volumes
            if "persistentVolumeClaim" in each
        }
        assert (there_not | {("ServiceAccount", pod.spec["serviceAccountName"])}) - there == {
            ("ConfigMap", "company-ca")
        }
    assert {stage_of(each) for each in of_kind(objects, "RayJob")} == {"gpu-check", "train"}


def test_an_api_server_would_accept_it(shared):
    found = [(each["metadata"]["name"], problems(each, shared / "k8s" / "crds")) for each in walk("none")[2]]
    assert [each for each in found if each[1]] == []
