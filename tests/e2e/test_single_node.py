"""The Job of the overlay single-node, as its pod would run it: killed once, and started again over the same volumes."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from restrain_openrlhf.data.demo_tasks.problems import write_gold
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION, training_problems
from tests.commands.k8s.experiments import rendered
from tests.commands.k8s.manifests import Object, Pod, of_kind, pick, pods, runs
from tests.conftest import ROOT
from tests.e2e.conftest import SMALL, Job, kill_when, run

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]
# Where torch puts extensions for the CPU unless it is told otherwise.
EXTENSIONS = Path.home() / ".cache" / "torch_extensions" / "py{}{}_cpu".format(*sys.version_info)
# What suits two cores: one thread each, and DeepSpeed's extension compiled once.
SMALL_MACHINE = {
    "OMP_NUM_THREADS": "1",
    "TORCH_EXTENSIONS_DIR": os.environ.get("TORCH_EXTENSIONS_DIR", str(EXTENSIONS)),
    # Ray would start a process for each of the worker's CPUs ahead of need.
    "RAY_prestart_worker_first_driver": "0",
    "RAY_metrics_report_interval_ms": "2000",
}
STEPS = 6
SETS = {
    "run_dir": "/mnt/work/runs/single-node",
    "reference": "",
    "method.prompt_weight": "online",
    "method.kappa": 2,
    "openrlhf.actor.model_name_or_path": "/mnt/models/demo",
    "openrlhf.data.prompt_dataset": "/mnt/work/data/prompts.jsonl",
    **{f"openrlhf.{name}": value for name, value in SMALL.items()},
}
# Shared with other processes here: Ray and torch have their own folders below.
AS_IT_IS = ("/tmp", "/dev/shm")


@dataclass(frozen=True)
class Volumes:
    """A pod's volumes as folders of this machine."""

    folder: Path
    mounts: Mapping[str, Path]

    @classmethod
    def of(cls, pod: Pod, folder: Path) -> "Volumes":
        paths = [each["mountPath"] for each in pod.spec["containers"][0]["volumeMounts"]]
        mounts = {path: folder / path.strip("/").replace("/", "-") for path in paths if path not in AS_IT_IS}
        for place in mounts.values():
            place.mkdir(parents=True)
        return cls(folder, mounts)

    def mapped(self, text: str) -> str:
        for path, place in self.mounts.items():
            text = text.replace(path, str(place))
        return text


def words_of(objects: list[Object], pod: Pod, volumes: Volumes) -> list[str]:
    """What the kubelet starts: the container's words and environment, with paths of this machine."""
    container = pod.spec["containers"][0]
    config = pick(objects, "ConfigMap", container["envFrom"][0]["configMapRef"]["name"])["data"]
    own = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    here = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), **SMALL_MACHINE}
    environment = {name: volumes.mapped(value) for name, value in {**config, **own}.items()} | here
    place = f"--chdir={volumes.mapped(container['workingDir'])}"
    command = [volumes.mapped(word) for word in (*container["command"], *container["args"])]
    return ["env", "-u", "RAY_ADDRESS", place, *(f"{name}={value}" for name, value in environment.items()), *command]


def test_a_killed_pod_is_followed_by_one_that_goes_on(tmp_path):
    pytest.importorskip("openrlhf", reason="needs the training stack (make install)")
    sets = [word for name, value in SETS.items() for word in ("--set", f"{name}={value}")]
    objects = rendered(*sets, config="configs/cpu/demo_addition.yaml", overlay="single-node-8gpu")
    (job,) = runs(objects)
    (pod,) = pods([job])
    volumes = Volumes.of(pod, tmp_path)
    fill(objects, volumes)
    words, folder = words_of(objects, pod, volumes), volumes.mounts["/mnt/work"] / "runs" / "single-node"
    watched = Watched(folder, tmp_path)

    kill_when(words, lambda: any(row["step"] >= 3 for row in watched.rows()), watched.log)
    before = watched.rows()
    assert not (folder / "completed.json").exists()
    # SIGKILL is no status that ends the Job, so its controller starts the next pod.
    assert job["spec"]["backoffLimit"] > 0
    assert pod.spec["restartPolicy"] == "Never"
    assert all("onExitCodes" not in rule for rule in job["spec"]["podFailurePolicy"]["rules"])

    done = run(words)
    assert done.returncode == 0, done.stderr[-2000:] + watched.log()[-3000:]
    rows = watched.rows()
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    assert rows[:2] == before[:2]
    assert "Loading the checkpoint" in watched.log()
    assert (folder / "model" / "model.safetensors").exists()
    assert list((folder / "tensorboard").rglob("events.*"))


@dataclass(frozen=True)
class Watched(Job):
    """The run in a folder of that name."""

    @property
    def run_dir(self) -> Path:
        return self.folder


def fill(objects: list[Object], volumes: Volumes) -> None:
    """What the steps before put on the volumes, and the ConfigMap."""
    (text,) = [found for each in of_kind(objects, "ConfigMap") if (found := each["data"].get("experiment.yaml"))]
    (volumes.mounts["/etc/restrain"] / "experiment.yaml").write_text(volumes.mapped(text))
    data = volumes.mounts["/mnt/work"] / "data"
    data.mkdir()
    write_gold(data / "prompts.jsonl", training_problems(STEPS * SMALL["rollout.batch_size"]))
    shutil.copytree(ADDITION.model, volumes.mounts["/mnt/models"] / "demo")
