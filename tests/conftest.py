"""What all tests share: the folder of shared material, small files, and how hypothesis looks for examples."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parents[1]

# Properties are about what holds, not about how fast; the same examples every time, also on a busy machine.
settings.register_profile("tests", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


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
