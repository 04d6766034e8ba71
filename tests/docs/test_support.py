"""The page of supported versions says what is pinned, and what pyproject.toml allows."""

import re
import tomllib

import pytest

from restrain_openrlhf.machine.host_releases import NEWEST, Way, range_of
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "operations" / "support.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| ([\w.]+) \| ([\d., ]+?) \|", PAGE, re.MULTILINE))


@pytest.mark.parametrize("name", ["vLLM", "Ray", "DeepSpeed", "transformers"])
def test_a_package_of_the_host_is_the_pinned_one(name):
    assert ROWS[name] == NEWEST.pins[name.lower()]


def test_openrlhf_is_what_the_hook_takes():
    assert f"| OpenRLHF | {range_of(Way.HOOK)} |" in PAGE


def test_torch_is_the_locks():
    lock = (ROOT / "requirements" / "gpu.txt").read_text(encoding="utf-8")
    assert ROWS["torch"] in re.findall(r"^torch==(\S+)$", lock, re.MULTILINE)
    assert f'"torch=={ROWS["torch"]}"' in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_python_is_what_the_package_allows():
    allowed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    low, high = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", allowed).groups()
    assert ROWS["Python"] == ", ".join(f"3.{minor}" for minor in range(int(low), int(high)))
