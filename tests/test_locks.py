"""The locks: each is closed under its own requirements, by metadata on record, and agrees with the other."""

import pytest
from packaging.requirements import Requirement

from tests.conftest import ROOT, module_of

STACKS = ("cpu", "gpu")


lock = module_of(ROOT / "tools" / "lock.py")


def problems(stack, versions):
    """What the pinned packages, as recorded, and this project miss among these versions."""
    found = list(lock.unmet("restrain-openrlhf", lock.wanted(stack), versions, stack))
    for line in (ROOT / "requirements" / f"{stack}-requires.txt").read_text().splitlines():
        head, _, rest = line.partition(":")
        package, needs = Requirement(head), [Requirement(each) for each in rest.split(" | ") if each.strip()]
        assert str(package.specifier) == f"=={lock.pins(stack)[package.name]}", (
            "`make install`, then tools/lock.py record"
        )
        found += lock.unmet(package.name, needs, versions, stack)
    return found


@pytest.mark.parametrize("stack", STACKS)
def test_a_lock_is_closed_under_its_own_requirements(stack):
    assert problems(stack, lock.pins(stack)) == []


def test_a_package_that_is_missing_and_a_version_that_does_not_fit_are_found():
    versions = {name: version for name, version in lock.pins("gpu").items() if name != "google-re2"}
    found = problems("gpu", {**versions, "torch": "2.12.0"})
    assert any("requires google-re2, which is not there" in line for line in found)
    assert "vllm requires torch==2.13.0, and 2.12.0 is there." in found


def test_both_locks_have_the_same_version_of_what_both_have():
    cpu, gpu = lock.pins("cpu"), lock.pins("gpu")
    assert {name: (cpu[name], gpu[name]) for name in cpu.keys() & gpu.keys() if cpu[name] != gpu[name]} == {}
