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
import yaml

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.k8s.kustomize import kustomize_command
from tests.conftest import ROOT

PRESET = "dapo14k/qwen3-4b-base/restrain"
IMAGE = "restrain-train=registry.example/restrain-train@sha256:" + "1" * 64
# Where the folders of the checkout lie in the wheel; the packages keep their places.
PLACES = {"configs": "restrain_openrlhf/repository/configs", "k8s": "restrain_openrlhf/repository/k8s"}
DOCKERFILES = ("train.Dockerfile", "reward.Dockerfile")


def copied(dockerfile: str) -> set[str]:
    """What an image takes from the checkout to install the package."""
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "docker" / dockerfile).read_text(), re.MULTILINE)
    return {word for line in lines for word in line.split() if not word.startswith("requirements/")}


def run(*words, cwd):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, cwd=cwd, env=environment, check=False)


def built(source: Path | str, out: Path) -> Path:
    """The wheel of a folder, or of an sdist."""
    words = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", out, source)
    done = run(sys.executable, *words, cwd=out)
    assert done.returncode == 0, done.stderr
    (wheel,) = out.glob("*.whl")
    return wheel


def source(folder: Path) -> Path:
    """A copy of what the images are built from: a build leaves folders behind, which the next one would read."""
    for name in copied("train.Dockerfile"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return built(source(tmp_path_factory.mktemp("source")), tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Runs a command of an environment that holds the wheel and what it asks for, in an empty folder."""
    environment = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=environment)
    python = environment / "bin" / "python"
    done = run(
        sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile", wheel, cwd=environment
    )
    assert done.returncode == 0, done.stderr
    empty = tmp_path_factory.mktemp("empty")

    def command(name, *words, cwd=empty):
        return run(environment / "bin" / name, *words, cwd=cwd)

    return command


def shipped(wheel: Path) -> set[str]:
    names = zipfile.ZipFile(wheel).namelist()
    return {name for name in names if ".dist-info/" not in name and not name.endswith("/")}


def tracked() -> set[str]:
    """Every file that the wheel must hold, under its name there."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout, which says what belongs to the repository")
    words = ("git", "ls-files", "configs", "k8s", "restrain_openrlhf", "test_time")
    names = run(*words, cwd=ROOT).stdout.split()
    return {"/".join([PLACES.get(top, top), rest]) for top, _, rest in (name.partition("/") for name in names)}


def test_the_wheel_holds_every_file_of_the_packages_and_of_configs_and_k8s(wheel):
    assert len(tracked()) > 300
    assert tracked() - shipped(wheel) == set()


def test_an_sdist_makes_the_same_wheel(wheel, tmp_path, tmp_path_factory):
    script = "from setuptools import build_meta; import sys; build_meta.build_sdist(sys.argv[1])"
    done = run(sys.executable, "-c", script, tmp_path, cwd=source(tmp_path_factory.mktemp("source")))
    assert done.returncode == 0, done.stderr
    (sdist,) = tmp_path.glob("*.tar.gz")
    assert shipped(built(sdist, tmp_path)) == shipped(wheel)


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_the_images_are_built_from_the_same_folders_which_their_context_lets_through(dockerfile):
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {"setup.py", "configs", "k8s"} <= copied(dockerfile) <= allowed
    assert copied(dockerfile) == copied("train.Dockerfile")


def test_the_environment_has_the_wheel_and_no_training_stack(installed):
    script = "import importlib.util as i, restrain_openrlhf as r; print(r.__file__, *map(i.find_spec, {}))"
    names = ["openrlhf", "torch", "ray", "vllm", "deepspeed", "transformers", "pytest"]
    where, *found = installed("python", "-c", script.format(names)).stdout.split()
    assert "site-packages" in where
    assert found == ["None"] * len(names)


def test_help_of_both_programs(installed):
    for words in (("restrain", "--help"), ("test-time", "--help"), ("test-time", "adapt", "--help")):
        done = installed(*words)
        assert done.returncode == 0, done.stderr


def test_presets_are_listed_and_each_can_be_shown_by_its_name(installed):
    names = installed("restrain", "presets").stdout.split()
    assert PRESET in names
    assert "cpu/study/right/ttrl" in names
    for name in (PRESET, "ablations/sigma-0.5", "test_time/llama3.1-8b-instruct/aime24/ttrl_protocol/ettrl"):
        assert name in names
        assert installed("restrain", "show", name).returncode == 0


def test_show_prints_the_command_and_says_what_it_was_checked_against(installed):
    done = installed("restrain", "show", PRESET)
    assert done.returncode == 0, done.stderr
    assert "sigma: 0.5" in done.stdout
    assert "--actor.model_name_or_path Qwen/Qwen3-4B-Base" in done.stdout
    assert "OpenRLHF is not installed" in done.stderr
    done = installed("restrain", "show", PRESET, "--set", "openrlhf.actor.adam.lrr=1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Did you mean 'actor.adam.lr'" in done.stderr


def demo_model(installed) -> str:
    return installed("python", "-c", "from restrain_openrlhf.demo.run import MODEL; print(MODEL)").stdout.strip()


def test_the_packages_own_model_is_found_from_its_presets(installed):
    shown = installed("restrain", "show", "cpu/study/right/restrain").stdout
    assert f"--actor.model_name_or_path {demo_model(installed)}" in shown
    assert (Path(demo_model(installed)) / "model.safetensors").is_file()


@pytest.mark.parametrize("job", [(), ("--job", "test-time")])
def test_k8s_renders_a_preset_by_name(installed, job):
    needs_kustomize()
    words = ("--overlay", "8xa100-80g", "--image", IMAGE, "--out", "-", *job)
    done = installed("restrain", "k8s", "render", PRESET, *words)
    assert done.returncode == 0, done.stderr
    objects = list(yaml.safe_load_all(done.stdout))
    (ray_job,) = (each for each in objects if each["kind"] == "RayJob")
    workers = ray_job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
    assert workers["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "8"


def test_k8s_render_checks_flags_as_openrlhf_would(installed):
    needs_kustomize()
    words = ("--overlay", "8xa100-80g", "--image", IMAGE, "--out", "-")
    for item, message in (
        ("openrlhf.actor.adam.lrr=1", "Did you mean 'actor.adam.lr'"),
        ("openrlhf.algo.kl.estimator=k9", "invalid choice: 'k9'"),
        ("openrlhf.actor.num_nodes=4", "this overlay has 1"),
    ):
        done = installed("restrain", "k8s", "render", PRESET, *words, "--set", item)
        assert done.returncode == 2, done.stderr
        assert message in done.stderr


@pytest.mark.parametrize("command", ["adapt", "sweep"])
@pytest.mark.parametrize("chosen", ["--preset=paper", "--preset=ttrl_protocol", "--config=cpu/test_time"])
def test_adaptations_find_their_preset_and_stop_at_the_missing_stack(installed, tmp_path, command, chosen):
    """As far as it goes: the flags are checked by OpenRLHF's own parser before anything is trained."""
    (tmp_path / "p.jsonl").write_text('{"problem": "1+1="}\n')
    words = ("--model", demo_model(installed), "--prompts", tmp_path / "p.jsonl", "--out", tmp_path / "out")
    done = installed("test-time", command, *words, chosen)
    assert done.returncode == 2
    assert "OpenRLHF is not installed. Install openrlhf 0.11.2." in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("command", ["train", "make-reference"])
def test_runs_find_their_preset_and_stop_at_the_missing_stack(installed, command):
    done = installed("restrain", command, PRESET)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "error: OpenRLHF is not installed. Install openrlhf 0.11.2."


def test_a_study_finds_presets_and_the_files_they_extend(installed):
    done = installed("restrain", "study", PRESET, "ablations/sigma-1")
    assert done.returncode == 2
    assert "dapo14k/qwen3-4b-base/restrain.yaml: openrlhf has no eval.dataset" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("restrain", "show", "qwen3-4b-base/restrain"),
        ("restrain", "train", "configs/dapo14k/qwen3-4b-base/restrain.yaml"),
        ("restrain", "make-reference", "dapo14k/qwen3-4b-base/restrian"),
        ("restrain", "study", PRESET, "dapo14k/qwen3-4b-base/restran"),
        ("restrain", "k8s", "render", "dapo14k/qwen3-4b/restrain", "--overlay", "8xa100-80g", "--out", "-"),
    ],
)
def test_a_name_that_is_neither_a_file_nor_a_preset_is_one_line(installed, words):
    done = installed(*words)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "no such file" in line
    assert PRESET in line
    assert "`restrain presets`" in line


def needs_kustomize():
    try:
        kustomize_command()
    except ConfigError as error:
        pytest.skip(str(error))
