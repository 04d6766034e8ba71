"""The wheel: what it holds, and what its commands do with its declared dependencies alone and no checkout in reach.

The environment is filled by pip from the package index, so these tests need one.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from restrain_openrlhf.commands.k8s.render import refuse_old_kubectl
from restrain_openrlhf.config.command_line import preset_names
from restrain_openrlhf.config.shipped import CONFIGS, KUBERNETES
from restrain_openrlhf.errors import ConfigError
from tests.commands.k8s.experiments import ONE_GPU
from tests.commands.k8s.manifests import OVERLAYS
from tests.conftest import ROOT

PRESET = "dapo14k/qwen3-4b-base/restrain"
IMAGE = "restrain-train=registry.example/restrain-train@sha256:" + "1" * 64
# Where the folders of the checkout lie in the wheel; the packages keep their places.
PLACES = {"configs": "restrain_openrlhf/repository/configs", "k8s": "restrain_openrlhf/repository/k8s"}
NO_OPENRLHF = "OpenRLHF is not installed. Install openrlhf 0.11.2."
DOCKERFILES = ("train.Dockerfile", "reward.Dockerfile")


def copied(dockerfile: str) -> set[str]:
    """What an image takes from the checkout to install the package."""
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "docker" / dockerfile).read_text(), re.MULTILINE)
    return {word for line in lines for word in line.split() if not word.startswith(("requirements/", "tools/"))}


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
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def backend(hook: str, out: Path, cwd: Path) -> None:
    """One of the build backend's own functions, as pip calls it in the folder of the source."""
    script = f"from setuptools import build_meta; import sys; build_meta.{hook}(sys.argv[1])"
    done = run(sys.executable, "-c", script, out, cwd=cwd)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return built(source(tmp_path_factory.mktemp("source")), tmp_path_factory.mktemp("wheel"))


@dataclass(frozen=True)
class Installed:
    """An environment that holds the wheel and what it asks for; commands run in an empty folder."""

    folder: Path
    empty: Path

    def __call__(self, name, *words, cwd=None):
        return run(self.folder / "bin" / name, *words, cwd=cwd or self.empty)

    @property
    def package(self) -> Path:
        (folder,) = self.folder.glob("lib/python3*/site-packages/restrain_openrlhf")
        return folder


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Installed:
    environment = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=environment)
    python = environment / "bin" / "python"
    words = ("--python", python, "install", "--quiet", "--no-compile", wheel)
    done = run(sys.executable, "-m", "pip", *words, cwd=environment)
    assert done.returncode == 0, done.stderr
    return Installed(environment, tmp_path_factory.mktemp("empty"))


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
    backend("build_sdist", tmp_path, cwd=source(tmp_path_factory.mktemp("source")))
    (sdist,) = tmp_path.glob("*.tar.gz")
    assert shipped(built(sdist, tmp_path)) == shipped(wheel)


def test_an_editable_installation_reads_the_checkouts_own_folders(tmp_path, tmp_path_factory):
    checkout = source(tmp_path_factory.mktemp("source"))
    backend("build_editable", tmp_path, cwd=checkout)
    (editable,) = tmp_path.glob("*.whl")
    assert all(name.startswith("__editable__") for name in shipped(editable))
    (finder,) = (name for name in shipped(editable) if name.endswith(".py"))
    assert f"'{checkout / 'restrain_openrlhf'}'" in zipfile.ZipFile(editable).read(finder).decode()
    assert (CONFIGS, KUBERNETES) == (ROOT / "configs", ROOT / "k8s")


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_the_images_are_built_from_the_same_folders_which_their_context_lets_through(dockerfile):
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {"setup.py", "configs", "k8s"} <= copied(dockerfile) <= allowed
    assert copied(dockerfile) == copied("train.Dockerfile")


def test_the_environment_has_the_wheel_and_no_training_stack(installed):
    script = "import importlib.util as i, restrain_openrlhf as r; print(r.__file__, *map(i.find_spec, {}))"
    names = ["openrlhf", "torch", "ray", "vllm", "deepspeed", "transformers", "pytest"]
    where, *found = installed("python", "-c", script.format(names)).stdout.split()
    assert where == str(installed.package / "__init__.py")
    assert found == ["None"] * len(names)


@pytest.mark.parametrize("program", ["restrain", "test-time"])
def test_help_of_both_programs(installed, program):
    done = installed(program, "--help")
    assert done.returncode == 0, done.stderr


def test_presets_are_listed(installed):
    """By the names that tests/config/test_preset_names.py checks one by one."""
    shown = installed("restrain", "presets").stdout.splitlines()
    assert [line.split()[0] for line in shown] == preset_names()


def test_show_prints_the_command_and_says_what_it_was_checked_against(installed):
    done = installed("restrain", "show", PRESET)
    assert done.returncode == 0, done.stderr
    assert "sigma: 0.5" in done.stdout
    assert "--actor.model_name_or_path Qwen/Qwen3-4B-Base" in done.stdout
    assert "OpenRLHF is not installed" in done.stderr
    done = installed("restrain", "show", PRESET, "--set", "openrlhf.actor.adam.lrr=1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Did you mean 'openrlhf.actor.adam.lr'" in done.stderr


def test_base_and_hook_ask_for_ranges_alone(wheel):
    """An exact pin would change what an environment has; latex2sympy2's is in extras that are asked for by name."""
    needs = [Requirement(line) for line in metadata(wheel).get_all("Requires-Dist")]
    own = [need for need in needs if need.marker is None or need.marker.evaluate({"extra": "hook"})]
    assert {need.name for need in own} >= {"numpy", "pydantic", "wrapt", "aiohttp"}
    assert [str(need) for need in own if {each.operator for each in need.specifier} != {">="}] == []
    assert {"hook", "service", "test-time", "math"} <= set(metadata(wheel).get_all("Provides-Extra"))
    pinned = {
        extra
        for extra in ("math", "service", "test-time")
        for need in needs
        if need.name == "latex2sympy2" and need.marker.evaluate({"extra": extra})
    }
    assert pinned == {"math", "service", "test-time"}


def metadata(wheel: Path) -> Message:
    """What pip reads of a wheel."""
    archive = zipfile.ZipFile(wheel)
    (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
    return message_from_bytes(archive.read(name))


@pytest.fixture
def sums(installed):
    """A file with an answer that only latex2sympy2 reads, and one that equals it."""
    path = installed.empty / "sums.jsonl"
    path.write_text(
        json.dumps({"id": 0, "problem": "p", "responses": [r"\boxed{\sum_{i=1}^{3} i}", r"\boxed{6}"]}) + "\n"
    )
    return path


SUMS = ("--out", "scored.jsonl", "--method", "ttrl")


def test_without_latex2sympy2_the_error_has_the_command_that_changes_nothing_else(installed, sums):
    done = installed("restrain", "score", sums, *SUMS)
    assert done.returncode == 2
    folder = installed.folder / "latex2sympy2"
    assert f"-m pip install --target {folder} latex2sympy2==1.9.1`" in " ".join(done.stderr.split())
    words = ("-c", r"from restrain_openrlhf import score; score(['\boxed{1}'])")
    assert "latex2sympy2 is not installed" in installed("python", *words).stderr


def test_latex2sympy2_is_read_from_its_folder_beside_another_antlr4(installed, sums):
    here = distribution("latex2sympy2").locate_file("")
    folder, other = installed.folder / "latex2sympy2", installed.package.parent / "antlr4"
    folder.mkdir()
    other.mkdir()
    try:
        for name in ("latex2sympy2.py", "asciimath_printer.py", "gen", "antlr4", "sympy", "mpmath"):
            (folder / name).symlink_to(here / name)
        (other / "__init__.py").write_text("raise ImportError('of another version')\n")
        done = installed("restrain", "score", sums, *SUMS)
        assert done.returncode == 0, done.stderr
        assert json.loads((installed.empty / "scored.jsonl").read_text())["counts"] == [2]
    finally:
        shutil.rmtree(folder)
        shutil.rmtree(other)


def test_integrate_needs_no_openrlhf(installed):
    flags = "--vllm.num_engines 8 --train.colocate_all --rollout.n_samples_per_prompt 16 --data.prompt_dataset p"
    command = f"python -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path m {flags}"
    done = installed("restrain", "integrate", "--command", command)
    assert done.returncode == 0, done.stderr
    assert "+python -m restrain_openrlhf.hook.train_ppo_ray" in done.stdout
    assert "=> --algo.kl.use_loss" in done.stdout


def test_the_packages_own_model_is_found_from_its_presets(installed):
    shown = installed("restrain", "show", "cpu/study/right/restrain").stdout
    assert f"--actor.model_name_or_path {installed.package / 'data' / 'demo_tasks' / 'models'}" in shown


@pytest.mark.parametrize("preset", [PRESET, "test_time/llama3.1-8b-instruct/aime24/restrain"])
def test_k8s_renders_a_preset_by_name(installed, tmp_path, preset):
    needs_kustomize()
    words = ("--overlay", "8xa100-80g", "--image", IMAGE, "--out", tmp_path / "out")
    done = installed("restrain", "k8s", "render", preset, *words)
    assert done.returncode == 0, done.stderr
    objects = [each for path in (tmp_path / "out").glob("*.yaml") for each in yaml.safe_load_all(path.read_text())]
    (ray_job,) = (each for each in objects if each["kind"] == "RayJob")
    workers = ray_job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
    assert workers["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "8"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_k8s_renders_every_overlay_into_a_folder_that_can_be_applied(installed, tmp_path, overlay):
    """With the wheel's own tree and script; a preset of eight GPUs is made smaller for nodes of one."""
    needs_kustomize()
    shape = yaml.safe_load((ROOT / "k8s" / "overlays" / overlay / "overlay.yaml").read_text())
    small = {name: value for name, value in ONE_GPU.items() if shape["gpus_per_node"] == 1}
    sets = [word for name, value in small.items() for word in ("--set", f"{name}={value}")]
    words = ("--overlay", overlay, "--image", IMAGE, "--out", tmp_path / "out", *sets)
    done = installed("restrain", "k8s", "render", PRESET, *words)
    assert done.returncode == 0, done.stderr
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".yaml", ".sh"}
    assert (tmp_path / "out" / "run.sh").read_text().startswith("#!/bin/sh\n")


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("openrlhf.actor.adam.lrr=1", "Did you mean 'openrlhf.actor.adam.lr'"),
        ("openrlhf.algo.kl.estimator=k9", "invalid choice: 'k9'"),
        ("openrlhf.actor.num_nodes=4", "Set ref.num_nodes to 4"),
    ],
)
def test_k8s_render_checks_flags_as_openrlhf_would(installed, tmp_path, item, message):
    words = ("--overlay", "8xa100-80g", "--image", IMAGE, "--out", tmp_path / "out", "--set", item)
    done = installed("restrain", "k8s", "render", PRESET, *words)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr


@pytest.mark.parametrize("chosen", ["--method=restrain", "--config=cpu/test_time"])
def test_adaptations_find_their_preset_and_stop_at_the_missing_stack(installed, tmp_path, chosen):
    """As far as it goes: the flags are checked by OpenRLHF's own parser before anything is trained."""
    (tmp_path / "p.jsonl").write_text('{"problem": "1+1="}\n')
    model = installed.package / "data" / "demo_tasks" / "models" / "addition"
    words = ("--model", model, "--prompts", tmp_path / "p.jsonl", "--out", tmp_path / "out")
    done = installed("test-time", "adapt", *words, chosen)
    assert done.returncode == 2
    assert NO_OPENRLHF in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("words", [f"train {PRESET}", f"reference {PRESET}", "demo --out demo"])
def test_runs_find_their_preset_and_stop_at_the_missing_stack(installed, tmp_path, words):
    done = installed("restrain", *words.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"error: {NO_OPENRLHF}"


def test_a_study_finds_presets_and_the_files_they_extend(installed):
    done = installed("restrain", "study", PRESET, "ablations/sigma-1")
    assert done.returncode == 2
    assert "dapo14k/qwen3-4b-base/restrain.yaml: openrlhf has no eval.dataset" in done.stderr


def test_a_command_that_needs_the_stack_says_what_is_missing(installed, tmp_path):
    (tmp_path / "p.jsonl").write_text('{"problem": "1+1="}\n')
    shutil.copy(installed.package / "data" / "demo_tasks" / "models" / "addition" / "config.json", tmp_path)
    words = ("--model", ".", "--prompts", "p.jsonl", "--out", tmp_path / "out")
    done = installed("restrain", "reference", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: transformers is not installed, and this command needs it.")
    assert "Traceback" not in done.stderr


def test_a_name_that_is_neither_a_file_nor_a_preset_is_one_line(installed):
    done = installed("restrain", "train", f"configs/{PRESET}.yaml")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"no such file, and no preset of this name. Did you mean '{PRESET}'" in line


def needs_kustomize():
    try:
        refuse_old_kubectl()
    except ConfigError as error:
        pytest.skip(str(error))
