"""The RayJob's entrypoint on a Ray cluster of two hosts, submitted from a third as KubeRay does, a fourth kept out."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from restrain_openrlhf.demo.run import MODEL
from restrain_openrlhf.demo.task import training_problems, write_gold
from tests.conftest import ROOT
from tests.e2e.conftest import SMALL, on_request
from tests.e2e.hosts import Host, hosts
from tests.k8s.firewall import rules_for
from tests.k8s.manifests import Pod, pick, pods

pytestmark = [pytest.mark.host, pytest.mark.e2e, pytest.mark.timeout(1800), on_request]
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef0123456789abcdef"}
BIN = Path(sys.executable).parent
DIGEST = "registry.example/restrain-train@sha256:" + "1" * 64
# As KubeRay 1.7 writes it into the submitter's container (K8sJobMode).
SUBMIT = (
    "if ! ray job status --address {address} {job} >/dev/null 2>&1 ; then "
    "ray job submit --address {address} --no-wait --submission-id {job} -- {entrypoint} ; fi ; "
    "ray job logs --address {address} --follow {job}"
)


def rendered() -> list[dict[str, Any]]:
    """The demo's manifests, by the real command."""
    sets = {
        "run_dir": "/mnt/work/runs/two-hosts",
        "reference": "",
        "method.prompt_weight": "online",
        "method.kappa": 2,
        "openrlhf.data.prompt_dataset": "/mnt/work/data/prompts.jsonl",
        **{f"openrlhf.{name}": value for name, value in SMALL.items()},
    }
    words = [word for name, value in sets.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "restrain_openrlhf.cli.main", "k8s", "render", "configs/cpu/demo.yaml", *words]
    options = ["--overlay", "8xa100-80g", "--image", f"restrain-train={DIGEST}", "--out", "-"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode == 2 and "Kustomize" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@dataclass
class Cluster:
    """The Ray cluster of a RayJob on two hosts; every start is a new cluster on the same volumes, as a retry's is."""

    objects: list[dict[str, Any]]
    machines: dict[str, Host]
    folder: Path
    running: dict[str, subprocess.Popen] = field(default_factory=dict)
    started: dict[str, tuple] = field(default_factory=dict)

    @property
    def job(self) -> dict[str, Any]:
        return pick(self.objects, "RayJob", "train-two-hosts")["spec"]

    @property
    def address(self) -> str:
        return f"http://{self.machines['head'].address}:8265"

    def environment(self, host: Host) -> dict[str, str]:
        return {
            **TOKEN,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "VLLM_HOST_IP": host.address,
        }

    def start(self) -> None:
        cluster = self.job["rayClusterSpec"]
        group = cluster["workerGroupSpecs"][0]
        gpus = group["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
        head = self.machines["head"].address
        common = {"metrics-export-port": "8080", "object-store-memory": str(300 * 2**20)}
        self._ray("head", {**cluster["headGroupSpec"]["rayStartParams"], "port": "6379", **common}, "--head")
        wait_for(lambda: self._restarted() and self._alive_nodes() == 1, "the head")
        # KubeRay gives Ray the limits of the pod; two cores stand for the worker's many.
        self._ray("worker", {"address": f"{head}:6379", "num-gpus": gpus, "num-cpus": "8", **common})
        wait_for(lambda: self._restarted() and self._alive_nodes() == 2, "the worker")

    def _restarted(self) -> bool:
        """Start again what has ended by itself, as a kubelet does: Ray ends where a part of it fails to start."""
        for name, process in self.running.items():
            if process.poll() is not None:
                self._ray(name, *self.started[name])
        return True

    def _ray(self, name: str, options: dict[str, str], *flags: str) -> None:
        self.started[name] = (options, *flags)
        host = self.machines[name]
        words = ["ray", "start", *flags, "--block", f"--node-ip-address={host.address}"]
        words += [f"--{key}={value}" for key, value in options.items()]
        paths = (self.folder / "work", self.folder / "config")
        log = self.folder / f"{name}.log"
        self.running[name] = host.start_pod(words, *paths, self.environment(host), log)

    def _alive_nodes(self) -> int:
        script = (
            "import json; from ray.util.state import list_nodes; print(sum(n.state == 'ALIVE' for n in list_nodes()))"
        )
        head = self.machines["head"]
        done = head.run([sys.executable, "-c", script], {**self.environment(head), "RAY_ADDRESS": self.address})
        return int(done.stdout.split()[-1]) if done.returncode == 0 else 0

    def submit(self, name: str) -> subprocess.Popen:
        """What the submitter's pod does; ends when the job does."""
        host = self.machines["submitter"]
        command = SUBMIT.format(address=self.address, job=name, entrypoint=self.job["entrypoint"])
        paths = (self.folder / "work", self.folder / "config")
        return host.start_pod(["sh", "-c", command], *paths, self.environment(host), self.folder / f"{name}.log")

    def status(self, name: str) -> str:
        host = self.machines["submitter"]
        return host.run(["ray", "job", "status", "--address", self.address, name], self.environment(host)).stdout

    def kill(self, *names: str) -> None:
        """SIGKILL, as a node that is gone."""
        for name in names:
            process = self.running.pop(name)
            process.kill()
            process.wait()

    def rows(self) -> list[dict[str, Any]]:
        path = self.folder / "work" / "runs" / "two-hosts" / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def logs(self) -> str:
        train = self.folder / "work" / "runs" / "two-hosts" / "train.log"
        paths = [*self.folder.glob("*.log"), *([train] if train.exists() else [])]
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in paths)


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.5)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    pytest.importorskip("openrlhf", reason="needs the training stack")
    objects = rendered()
    prepare(objects, tmp_path)
    with hosts("head", "worker", "submitter", "intruder") as machines, policies(objects, machines):
        made = Cluster(objects, machines, tmp_path)
        try:
            made.start()
            yield made
        finally:
            made.kill(*made.running)


def prepare(objects: list[dict[str, Any]], folder: Path) -> None:
    """What the volumes and the ConfigMap hold."""
    (config,) = [each for each in objects if each["kind"] == "ConfigMap" and "experiment.yaml" in each["data"]]
    for name in ("work/data", "work/runs", "config"):
        (folder / name).mkdir(parents=True)
    (folder / "config" / "experiment.yaml").write_text(config["data"]["experiment.yaml"])
    write_gold(folder / "work" / "data" / "prompts.jsonl", training_problems(48))
    shutil.copytree(MODEL, folder / "work" / "restrain_openrlhf" / "demo" / "model")


@contextmanager
def policies(objects: list[dict[str, Any]], machines: dict[str, Host]) -> Iterator[None]:
    """The rendered NetworkPolicies on every host; the intruder is the evaluation's pod, in the same namespace."""
    found: dict[str, Pod] = {
        pod.role: pod for pod in pods(objects) if pod.owner["metadata"]["name"] == "train-two-hosts"
    }
    (found["intruder"],) = [pod for pod in pods(objects) if pod.owner["metadata"]["name"] == "evaluation"]
    for name, machine in machines.items():
        if name == "intruder":
            continue  # its own kernel may be lying: the others must keep it out
        peers = [(pod, machines[role].address) for role, pod in found.items()]
        machine.firewall(rules_for(objects, found[name], peers))
    yield


def answers(source: Host, address: str, port: int) -> bool:
    """Whether a TCP connection from `source` is taken."""
    script = f"import socket; socket.create_connection(({address!r}, {port}), timeout=3)"
    return source.run([sys.executable, "-c", script]).returncode == 0


def http_status(source: Host, url: str, token: str = "") -> int:
    script = (
        "import sys, urllib.request, urllib.error\n"
        f"headers = {{'Authorization': 'Bearer {token}'}} if {token!r} else {{}}\n"
        f"request = urllib.request.Request({url!r}, headers=headers)\n"
        "try:\n    print(urllib.request.urlopen(request, timeout=10).status)\n"
        "except urllib.error.HTTPError as error:\n    print(error.code)\n"
    )
    return int(source.run([sys.executable, "-c", script]).stdout)


def test_train_on_two_hosts_survives_a_lost_worker_and_keeps_an_intruder_out(cluster):
    machines, head = cluster.machines, cluster.machines["head"].address
    first = cluster.submit("first")
    wait_for(lambda: any(row["step"] >= 3 for row in cluster.rows()) or first.poll() is not None, "step 3", 900)
    assert cluster.rows(), cluster.logs()

    # The deny rules, while the job runs: nobody but its own may talk to the cluster, and nobody without the token.
    assert answers(machines["submitter"], head, 8265)
    assert not answers(machines["submitter"], head, 6379)
    for name in ("head", "worker"):
        assert not any(answers(machines["intruder"], machines[name].address, port) for port in (6379, 8080, 8265))
    assert not answers(machines["worker"], machines["intruder"].address, 22)
    assert http_status(machines["submitter"], f"{cluster.address}/api/jobs/") == 401
    assert http_status(machines["submitter"], f"{cluster.address}/api/jobs/", TOKEN["RAY_AUTH_TOKEN"]) == 200
    exported = machines["worker"].run([sys.executable, "-c", METRICS]).stdout
    assert 'run="two-hosts"' in next(
        line for line in exported.splitlines() if line.startswith("ray_restrain_majority_share_mean")
    )
    assert "ray_restrain_host_kl{" in exported

    cluster.kill("worker")
    killed_at = cluster.rows()
    wait_for(lambda: "FAILED" in cluster.status("first"), "the job to notice that its worker is gone")
    assert first.wait(60) is not None
    cluster.kill("head")

    cluster.start()
    second = cluster.submit("second")
    assert second.wait(900) is not None
    assert "SUCCEEDED" in cluster.status("second"), cluster.logs()
    rows = cluster.rows()
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert rows[:2] == killed_at[:2]
    run = cluster.folder / "work" / "runs" / "two-hosts"
    assert "Loading the checkpoint" in (run / "train.log").read_text(errors="replace")
    assert (run / "model" / "model.safetensors").exists()


METRICS = "import urllib.request; print(urllib.request.urlopen('http://localhost:8080/metrics').read().decode())"


def test_the_entrypoint_is_the_manifests_own():
    """What the test submits is what the RayJob runs, with its configuration where the pod mounts it."""
    job = pick(rendered(), "RayJob", "train-two-hosts")["spec"]
    assert shlex.split(job["entrypoint"]) == ["restrain", "train", "/etc/restrain/experiment.yaml"]
    for group in (job["rayClusterSpec"]["headGroupSpec"], job["rayClusterSpec"]["workerGroupSpecs"][0]):
        mounts = group["template"]["spec"]["containers"][0]["volumeMounts"]
        assert {"name": "experiment", "mountPath": "/etc/restrain", "readOnly": True} in mounts
