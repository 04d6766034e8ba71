"""What all tests share: shared material, small files, how hypothesis looks for examples, and which long tests run."""

import importlib.util
import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

from restrain_openrlhf.machine.devices import is_cuda_stack
from tests.e2e import rota

ROOT = Path(__file__).parents[1]

# The CPU's stack compiles nothing. Torch reads this once, which may be before a test installs the stack.
if not is_cuda_stack():
    os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")

# Properties are about what holds, not about how fast; the same examples every time, also on a busy machine.
settings.register_profile("tests", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Lets CI run a part of the long tests."""
    choices = [rota.ALL, *sorted(rota.PARTS)]
    parser.addoption("--part", choices=choices, default=rota.ALL, help="which long tests to run (tests/e2e/rota.py)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the long tests of other parts."""
    part, tests = config.getoption("--part"), ROOT / "tests"
    other = [
        item
        for item in items
        if item.get_closest_marker("long") and not rota.runs(part, item.path.relative_to(tests).as_posix())
    ]
    config.hook.pytest_deselected(items=other)
    items[:] = [item for item in items if item not in set(other)]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """On a slow machine, leaves out the long tests that CI has no time for, and says so."""
    if item.get_closest_marker("long") and rota.too_late(item.path.relative_to(ROOT / "tests").as_posix()):
        pytest.skip("a slow machine: CI's time to begin long tests is over (LONG_TESTS_UNTIL)")


def pytest_report_header(config: pytest.Config) -> str | None:
    """Says that long tests are left out."""
    part = config.getoption("--part")
    if part == rota.ALL:
        return None
    return f"long tests: part {part} of {len(rota.PARTS)} (tests/e2e/rota.py)"


@pytest.fixture
def shared() -> Path:
    """Material beside the checkout; tests that need it skip where it is absent."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs the shared material: put it beside the checkout, in ../shared")
    return folder


@pytest.fixture
def write_jsonl(tmp_path: Path) -> Callable[[str, Iterable[object]], Path]:
    """Write rows to a file under the test's folder; returns its path."""

    def write(name: str, rows: Iterable[object]) -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


def module_of(path: Path) -> ModuleType:
    """What a file beside the packages defines."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows_of(path: Path) -> list[dict]:
    """The rows of a file of JSON Lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def needs_bubblewrap() -> None:
    """Skips a test that runs programs where bubblewrap is not installed."""
    if shutil.which("bwrap") is None:
        pytest.skip("programs run in bubblewrap, which is not here (Debian: bubblewrap)")
