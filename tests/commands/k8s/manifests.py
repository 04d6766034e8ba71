"""Rendered overlays, and every pod in them, as the rules look at them."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from restrain_openrlhf.commands.k8s.command import build
from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from tests.conftest import ROOT

OVERLAYS = sorted(path.parent.name for path in (ROOT / "k8s" / "overlays").glob("*/overlay.yaml"))
Object = dict[str, Any]


@dataclass(frozen=True)
class Pod:
    """A pod template: whose it is, its role in a Ray cluster ("" elsewhere), metadata and spec."""

    owner: Object
    role: str
    labels: dict[str, str]
    annotations: dict[str, str]
    spec: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.owner['kind']}/{self.owner['metadata']['name']}" + (f"/{self.role}" if self.role else "")

    @property
    def containers(self) -> list[dict[str, Any]]:
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    @property
    def gpus(self) -> int:
        return sum(int(each["resources"].get("limits", {}).get("nvidia.com/gpu", 0)) for each in self.containers)


def overlay(name: str) -> list[Object]:
    """An overlay's objects, built once: copy them before changing them. Skips where Kustomize is missing."""
    needs_kustomize()
    return built(ROOT / "k8s" / "overlays" / name)


def needs_kustomize() -> None:
    """Skips where there is no Kustomize, saying what to install."""
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl 1.29 or newer")


@cache
def built(folder: Path) -> list[Object]:
    """What Kustomize makes of a folder."""
    return build(folder)


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    return [each for each in objects if each["kind"] in kinds]


def runs(objects: list[Object]) -> list[Object]:
    """What trains: RayJobs, and the Jobs of a tree without KubeRay."""
    steps = ("train", "test-time")
    return [
        each
        for each in of_kind(objects, "RayJob", "Job")
        if each["metadata"]["labels"]["app.kubernetes.io/component"] in steps
    ]


def pick(objects: list[Object], kind: str, name: str) -> Object:
    """The one object of this name, be it followed by the hash of a generated one."""
    hashed = re.compile(re.escape(name) + "(-[2456789bcdfghkmt]{10})?")
    (found,) = [each for each in of_kind(objects, kind) if hashed.fullmatch(each["metadata"]["name"])]
    return found


def pods(objects: list[Object]) -> Iterator[Pod]:
    """Every pod that these objects make, KubeRay's submitter included."""
    for each in of_kind(objects, "Pod"):
        yield _pod(each, "", each)
    for each in of_kind(objects, "Job", "Deployment"):
        yield _pod(each, "", each["spec"]["template"])
    for each in of_kind(objects, "RayJob"):
        cluster = each["spec"]["rayClusterSpec"]
        # Without a template of its own the submitter would be KubeRay's default, which has no security context.
        yield _pod(each, "submitter", each["spec"].get("submitterPodTemplate", {"spec": {"containers": [{}]}}))
        yield _pod(each, "head", cluster["headGroupSpec"]["template"])
        for group in cluster["workerGroupSpecs"]:
            yield _pod(each, "worker", group["template"])


def _pod(owner: Object, role: str, template: dict[str, Any]) -> Pod:
    metadata = template.get("metadata", {})
    return Pod(owner, role, metadata.get("labels", {}), metadata.get("annotations", {}), template["spec"])


def worker_gpus(run: Object) -> int:
    """GPUs of all workers of a RayJob, or of the one pod that trains."""
    if run["kind"] == "Job":
        (pod,) = pods([run])
        return pod.gpus
    (group,) = run["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    return int(group["replicas"]) * int(limits["nvidia.com/gpu"])


def experiment_of(objects: list[Object], run: Object, folder: Path) -> RunConfig:
    """The configuration that a run's pods mount. Raises RestrainError where it is wrong."""
    volumes = next(pod for pod in pods([run]) if pod.role in ("", "head")).spec["volumes"]
    (name,) = [each["configMap"]["name"] for each in volumes if "configMap" in each]
    (config,) = [each for each in of_kind(objects, "ConfigMap") if each["metadata"]["name"] == name]
    path = folder / f"{run['metadata']['name']}.yaml"
    path.write_text(config["data"]["experiment.yaml"])
    return load_run_config(path)
