"""The Kubernetes guide's commands, copied from its pages and run: kubectl and ours really, others stood in."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from restrain_openrlhf.config.shipped import KUBERNETES
from tests.commands.k8s.manifests import needs_kustomize
from tests.commands.k8s.stand_in.api import StandIn
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "operations" / "kubernetes.md"
MOST = {"One node": 5, "One node, of eight GPUs": 5, "Several nodes, or one with KubeRay": 7}
GPUS = dict(zip(MOST, ("1", "8", "8"), strict=True))
DIGEST = "sha256:" + "1" * 64


A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
EIGHT_GPUS = "One node, of eight GPUs"


def blocks_of(text: str) -> list[list[str]]:
    """The commands of each indented block, as a shell reads them."""
    blocks = re.findall(r"(?:^    .+\n)+", text, re.MULTILINE)
    return [[line.strip() for line in re.sub(r"\\\n\s+", "", block).splitlines()] for block in blocks]


def commands_of(start: str) -> list[str]:
    """The first block below the heading; for eight GPUs with the second block's command for its like."""
    heading = start.partition(", of ")[0]
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    first, second, *_ = [*blocks_of(text), []]
    if start != EIGHT_GPUS:
        return first
    (render,) = second
    return [render if is_render(command) else command for command in first]


def is_render(command: str) -> bool:
    return command.startswith("restrain k8s render")


@pytest.mark.parametrize("section", MOST)
def test_from_a_clone_to_a_running_job_it_is_a_few_commands(section):
    commands = commands_of(section)
    assert 3 < len(commands) <= MOST[section]
    assert not any(joint in command for command in commands for joint in ("&&", ";", "|"))


@dataclass(frozen=True)
class Clone:
    """What the commands change of a clone, copied; programs before all others on PATH; what was called; a cluster."""

    folder: Path
    bin: Path
    cluster: StandIn

    def run(self, command: str) -> None:
        environment = {
            **os.environ,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "RESTRAIN_POLL_SECONDS": "0",
            "KUBECONFIG": str(self.bin / "kubeconfig"),
        }
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, check=False, cwd=self.folder, env=environment
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-1500:]}{done.stderr[-1500:]}"

    def calls(self, program: str) -> list[list[str]]:
        path = self.bin / "calls"
        lines = map(shlex.split, path.read_text().splitlines()) if path.exists() else []
        return [words[1:] for words in lines if words[0] == program]


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """With stand-ins for what would install or build, and for the cluster that kubectl talks to."""
    needs_kustomize()
    disks = {"standard": True, "shared": False}
    cluster = StandIn(nodes={"gpu-node": 8}, node_labels=A100, classes=disks, rounds_at_a_look=8)
    made = Clone(tmp_path / "clone", tmp_path / "bin", cluster)
    for folder in (made.folder, made.bin):
        folder.mkdir()
    cluster.serve(made.bin)
    for name in ("k8s", "configs", "docker"):
        shutil.copytree(ROOT / name, made.folder / name)
    shutil.copy(ROOT / "pyproject.toml", made.folder)
    for name in ("helm", "pip"):
        program(made.bin / name, f'echo {name} "$@" >> {made.bin}/calls')
    program(made.bin / "restrain", f'exec {sys.executable} -m restrain_openrlhf.commands.main "$@"')
    return made


def program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def built(clone: Clone, command: str) -> None:
    """What `docker/build.sh REGISTRY` leaves: an image by digest in the tree. The script has tests of its own."""
    script, registry, *_ = shlex.split(command)
    assert os.access(ROOT / script, os.X_OK), f"{script} is no program"
    path = clone.folder / "k8s" / "components" / "images" / "kustomization.yaml"
    text = path.read_text().replace("registry.invalid", registry)
    path.write_text(re.sub("sha256:0+", DIGEST, text))


@pytest.mark.host
@pytest.mark.parametrize("section", MOST)
def test_the_commands_of_the_guide_lead_to_a_run(section, clone):
    for command in commands_of(section):
        if command.startswith("docker/build.sh"):
            built(clone, command)
        elif is_render(command):
            # Installed with -e, the package has the clone's own tree, in which the digests are.
            clone.run(f"{command} --manifests k8s")
        else:
            clone.run(command)
    assert clone.calls("pip") == [["install", "-e", "."]]
    assert all("--namespace" in words and "--repo" in words for words in clone.calls("helm"))
    files = sorted((clone.folder / "manifests").glob("*.yaml"))
    jobs = [each for path in files for each in yaml.safe_load_all(path.read_text()) if "Job" in each["kind"]]
    assert all(clone.cluster.find(each["kind"], each["metadata"]["name"])["status"] for each in jobs)
    run = next(each for each in jobs if each["metadata"]["name"].startswith("train-"))
    assert run["kind"] == ("Job" if section.startswith("One node") else "RayJob")
    assert GPUS[section] in re.findall(r"nvidia.com/gpu: '(\d+)'", yaml.safe_dump(run))
    assert "registry.example/me/restrain-train@" + DIGEST in yaml.safe_dump(run)


def test_the_guide_names_what_a_clone_has():
    assert KUBERNETES.resolve() == (ROOT / "k8s").resolve()
    assert (ROOT / "pyproject.toml").is_file()
