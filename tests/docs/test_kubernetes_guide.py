"""The Kubernetes guide's commands, copied from its page and run: `restrain` and `run.sh` really, others stood in."""

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

from restrain_openrlhf.shipped import KUBERNETES
from tests.conftest import ROOT
from tests.docs import stand_in_cluster
from tests.k8s.manifests import needs_kustomize

PAGE = ROOT / "docs" / "operations" / "kubernetes.md"
MOST = {"One node": 5, "Several nodes, or one with KubeRay": 8}
DIGEST = "sha256:" + "1" * 64


def commands_of(section: str) -> list[str]:
    """The first block of commands below a heading, as a shell reads them."""
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    block = re.search(r"(?:^    .+\n)+", text, re.MULTILINE)
    assert block, section
    lines = re.sub(r"\\\n\s+", "", block[0]).splitlines()
    return [line.strip() for line in lines]


@pytest.mark.parametrize("section", MOST)
def test_from_a_clone_to_a_running_job_it_is_a_few_commands(section):
    commands = commands_of(section)
    assert 3 < len(commands) <= MOST[section]
    assert not any(joint in command for command in commands for joint in ("&&", ";", "|"))


@dataclass(frozen=True)
class Clone:
    """What the commands change of a clone, copied; the programs before all others on PATH; what was called."""

    folder: Path
    bin: Path

    def run(self, command: str) -> None:
        environment = {
            **os.environ,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "RESTRAIN_POLL_SECONDS": "0",
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
    """With stand-ins for what would install, build, or talk to a cluster; kubectl still renders."""
    needs_kustomize()
    made = Clone(tmp_path / "clone", tmp_path / "bin")
    for folder in (made.folder, made.bin):
        folder.mkdir()
    for name in ("k8s", "configs", "docker"):
        shutil.copytree(ROOT / name, made.folder / name)
    shutil.copy(ROOT / "pyproject.toml", made.folder)
    for name in ("kubectl", "helm", "pip"):
        program(made.bin / name, f'exec {sys.executable} -S {stand_in_cluster.__file__} {name} "$@"')
    program(made.bin / "restrain", f'exec {sys.executable} -m restrain_openrlhf.cli.main "$@"')
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
        elif command.startswith("restrain k8s render"):
            # Installed with -e, the package has the clone's own tree, in which the digests are.
            clone.run(f"{command} --manifests k8s")
        else:
            clone.run(command)
    assert clone.calls("pip") == [["install", "-e", "."]]
    assert all("--namespace" in words and "--repo" in words for words in clone.calls("helm"))
    applied = [Path(words[-1]) for words in clone.calls("kubectl") if words[0] == "apply"]
    files = sorted((clone.folder / "manifests").glob("*.yaml"), key=lambda path: int(path.name.partition("-")[0]))
    assert [path.name for path in applied] == [path.name for path in files]
    jobs = [each for path in files for each in yaml.safe_load_all(path.read_text()) if "Job" in each["kind"]]
    run = next(each for each in jobs if each["metadata"]["name"].startswith("train-"))
    assert run["kind"] == ("Job" if section == "One node" else "RayJob")
    assert "registry.example/me/restrain-train@" + DIGEST in yaml.safe_dump(run)


def test_the_guide_names_what_a_clone_has():
    assert KUBERNETES.resolve() == (ROOT / "k8s").resolve()
    assert (ROOT / "pyproject.toml").is_file()
