"""A RayJob's cluster on hosts of one machine: its pods started, probed, submitted to and watched as KubeRay does it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.e2e.hosts import Host

TOKEN = "0123456789abcdef0123456789abcdef"
BIN = Path(sys.executable).parent
# Where torch puts extensions for the CPU unless it is told otherwise.
EXTENSIONS = Path.home() / ".cache" / "torch_extensions" / "py{}{}_cpu".format(*sys.version_info)
# What suits two cores: one thread each, and DeepSpeed's extension compiled once, not by every pod.
SMALL_MACHINE = {
    "OMP_NUM_THREADS": "1",
    "TORCH_EXTENSIONS_DIR": os.environ.get("TORCH_EXTENSIONS_DIR", str(EXTENSIONS)),
    # Ray would start a process for each of the worker's CPUs ahead of need.
    "RAY_prestart_worker_first_driver": "0",
    "RAY_metrics_report_interval_ms": "2000",
}
# The submitter's script in K8sJobMode, from KubeRay 1.7 (ray-operator/controllers/ray/common/job.go).
HEALTHY = (
    "python -c \"import urllib.request; r=urllib.request.urlopen('{address}/api/gcs_healthz', timeout=10); "
    "exit(0 if b'success' in r.read() else 1)\""
)
SUBMIT = (
    f"until {HEALTHY} >/dev/null 2>&1 ; do echo waiting ; sleep 2 ; done ; "
    "if ! ray job status --address {address} {job} >/dev/null 2>&1 ; then "
    "ray job submit --address {address} --no-wait --submission-id {job} -- {entrypoint} ; fi ; "
    "ray job logs --address {address} --follow {job}"
)


@dataclass
class Cluster:
    """The Ray cluster of a RayJob on two hosts; every start is a new cluster on the same volumes, as a retry's is.

    `environment` is the ConfigMap that the pods take theirs from.
    """

    job: dict[str, Any]
    environment: dict[str, str]
    machines: dict[str, Host]
    folder: Path
    running: dict[str, subprocess.Popen] = field(default_factory=dict)
    commands: dict[str, list[str]] = field(default_factory=dict)
    starts: int = 0

    @property
    def address(self) -> str:
        return f"http://{self.machines['head'].address}:8265"

    def start(self) -> None:
        """Both pods, each until its probe answers."""
        self.starts += 1
        cluster = self.job["rayClusterSpec"]
        head, (group,) = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
        gpus = group["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
        self._start_pod("head", {**head["rayStartParams"], "port": "6379"}, "--head")
        gcs = f"{self.machines['head'].address}:6379"
        # KubeRay gives Ray the limits of the pod; two cores stand for the worker's many.
        self._start_pod("worker", {**group["rayStartParams"], "address": gcs, "num-gpus": gpus, "num-cpus": "8"})

    def _start_pod(self, name: str, params: dict[str, str], *flags: str) -> None:
        own = {"node-ip-address": self.machines[name].address, "object-store-memory": str(300 * 2**20)}
        defaults = {"metrics-export-port": "8080", "dashboard-agent-listen-port": "52365"}
        options = [f"--{key}={value}" for key, value in {**defaults, **params, **own}.items()]
        self.commands[name] = ["ray", "start", *flags, "--block", *options]
        self._run(name)
        url = f"http://{self.machines[name].address}:52365/api/healthz"
        wait_for(lambda: self._kept_running(name) and http(self.machines[name], url)[0] == 200, f"the {name}")

    def _run(self, name: str) -> None:
        self.running[name] = self._pod(name, self.commands[name], f"{name}-{self.starts}")

    def _kept_running(self, name: str) -> bool:
        """Start a pod again that has ended by itself, as a kubelet does."""
        if self.running[name].poll() is not None:
            self._run(name)
        return True

    def _pod(self, name: str, words: list[str], log: str) -> subprocess.Popen:
        gcs = {"head": "127.0.0.1:6379", "worker": f"{self.machines['head'].address}:6379"}
        own = {"HOME": "/tmp"} if name == "submitter" else {**self.environment, "RAY_ADDRESS": gcs[name]}
        values = {
            **own,
            **SMALL_MACHINE,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": TOKEN,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }
        volumes = (self.folder / "work", self.folder / "config")
        return self.machines[name].start_pod(words, *volumes, values, self.folder / f"{log}.log")

    def submit(self, job: str) -> subprocess.Popen:
        """What the submitter's pod does; ends when the job does."""
        script = SUBMIT.format(address=self.address, job=job, entrypoint=self.job["entrypoint"].strip())
        self.running["submitter"] = self._pod("submitter", ["/bin/bash", "-ce", "--", script], job)
        return self.running["submitter"]

    def status(self, job: str) -> str:
        """As the operator asks for it."""
        code, text = http(self.machines["submitter"], f"{self.address}/api/jobs/{job}", TOKEN)
        return json.loads(text)["status"] if code == 200 else f"HTTP {code}"

    def kill(self, *names: str) -> None:
        """SIGKILL every process of these pods."""
        for name in names:
            process = self.running.pop(name)
            process.kill()
            process.wait()

    @property
    def run_dir(self) -> Path:
        return self.folder / "work" / "runs" / "two-hosts"

    def rows(self) -> list[dict[str, Any]]:
        path = self.run_dir / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def logs(self) -> str:
        paths = [path for path in (*self.folder.glob("*.log"), self.run_dir / "train.log") if path.exists()]
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in paths)


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 300) -> None:
    """Raises AssertionError where the condition does not come true in this time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds:.0f} s for {what}"
        time.sleep(1)


def takes_connections(source: Host, address: str, port: int) -> bool:
    """Whether a TCP connection from `source` is taken."""
    script = f"import socket; socket.create_connection(({address!r}, {port}), timeout=3)"
    return source.run([sys.executable, "-S", "-c", script]).returncode == 0


def http(source: Host, url: str, token: str = "") -> tuple[int, str]:
    """Status and text of a GET from `source`; 0 where nobody answers."""
    script = (
        "import sys, urllib.request, urllib.error\n"
        f"headers = {{'Authorization': 'Bearer {token}'}} if {token!r} else {{}}\n"
        "try:\n"
        f"    answer = urllib.request.urlopen(urllib.request.Request({url!r}, headers=headers), timeout=10)\n"
        "except urllib.error.HTTPError as error:\n    answer = error\n"
        "except OSError:\n    sys.exit()\n"
        "print(answer.status, answer.read().decode(), sep='\\n')\n"
    )
    done = source.run([sys.executable, "-S", "-c", script])
    code, _, text = done.stdout.partition("\n")
    return int(code or 0), text
