"""The wheel: what it holds, and what its commands do with its declared dependencies alone and no checkout in reach.

The environment is filled by pip from the package index, so these tests need one.
"""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.commands.k8s.manifests import needs_kustomize
from tests.conftest import ROOT

IMAGE = "restrain-train=registry.example/restrain-train@sha256:" + "1" * 64
PRESET = "dapo14k/qwen3-4b-base/restrain"
# Where the folders of the checkout lie in the wheel; the packages keep their places.
PLACES = {"configs": "restrain_openrlhf/repository/configs", "k8s": "restrain_openrlhf/repository/k8s"}


def run(*words, cwd):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, cwd=cwd, env=environment, check=False)


def built(source: Path, out: Path) -> Path:
    """The wheel of a folder."""
    words = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", out, source)
    done = run(sys.executable, *words, cwd=out)
    assert done.returncode == 0, done.stderr
    (wheel,) = out.glob("*.whl")
    return wheel


def source(folder: Path) -> Path:
    """A copy of what the images are built from: a build leaves folders behind, which the next one would read."""
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "docker" / "train.Dockerfile").read_text(), re.MULTILINE)
    for name in {word for line in lines for word in line.split() if not word.startswith(("requirements/", "tools/"))}:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return built(source(tmp_path_factory.mktemp("source")), tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Runs a program of an environment that holds the wheel and what it asks for, in an empty folder."""
    environment, empty = tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("empty")
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=environment)
    words = ("--python", environment / "bin" / "python", "install", "--quiet", "--no-compile", wheel)
    done = run(sys.executable, "-m", "pip", *words, cwd=environment)
    assert done.returncode == 0, done.stderr
    return lambda name, *words: run(environment / "bin" / name, *words, cwd=empty)


def test_the_wheel_holds_every_file_of_the_packages_and_of_configs_and_k8s(wheel):
    if not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout, which says what belongs to the repository")
    names = run("git", "ls-files", "configs", "k8s", "restrain_openrlhf", "test_time", cwd=ROOT).stdout.split()
    tracked = {"/".join([PLACES.get(top, top), rest]) for top, _, rest in (name.partition("/") for name in names)}
    assert len(tracked) > 300
    assert tracked - set(zipfile.ZipFile(wheel).namelist()) == set()


# What works without the training stack, and where commands that need it stop.
WORDS = [
    (f"restrain show {PRESET}", 0, "--actor.model_name_or_path Qwen/Qwen3-4B-Base"),
    (f"restrain show {PRESET} --set openrlhf.actor.adam.lrr=1", 2, "Did you mean 'openrlhf.actor.adam.lr'"),
    ("restrain show cpu/study/right/restrain", 0, "site-packages/restrain_openrlhf/data/demo_tasks/models"),
    ("restrain study ablations/sigma-1", 2, "openrlhf has no eval.dataset"),
    (f"restrain train {PRESET}", 2, "OpenRLHF is not installed. Install openrlhf 0.11.2."),
    (f"restrain train configs/{PRESET}.yaml", 2, f"no such file, and no preset of this name. Did you mean '{PRESET}'"),
    ("test-time --help", 0, "adapt"),
]


@pytest.mark.parametrize(("words", "status", "said"), WORDS, ids=[words for words, *_ in WORDS])
def test_commands_find_what_the_wheel_holds(installed, words, status, said):
    done = installed(*words.split())
    assert (done.returncode, said in done.stdout + done.stderr) == (status, True), done.stderr
    assert "Traceback" not in done.stderr


def test_k8s_renders_a_preset_by_name(installed, tmp_path):
    needs_kustomize()
    words = ("--overlay", "8xa100-80g", "--image", IMAGE, "--out", tmp_path / "out")
    done = installed("restrain", "k8s", "render", PRESET, *words)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "run.sh").read_text().startswith("#!/bin/sh\n")
