"""CI's choice of long tests: nothing is in no part, and every part has its turn."""

import hashlib
import time
from collections import Counter

import pytest

from tests.conftest import ROOT
from tests.e2e import rota

TESTS = ROOT / "tests"


def long_files() -> set[str]:
    files = [path for path in TESTS.rglob("test_*.py") if path != TESTS / "test_rota.py"]
    return {path.relative_to(TESTS).as_posix() for path in files if "mark.long" in path.read_text(encoding="utf-8")}


def test_every_file_with_long_tests_is_in_one_part_or_in_each():
    dealt = Counter(file for files in rota.PARTS.values() for file in files)
    assert long_files() == {*dealt, *rota.EVERY_TIME}
    assert set(dealt.values()) == {1}
    assert not rota.EVERY_TIME & set(dealt)


def test_a_file_that_is_in_no_part_stops_the_collection():
    with pytest.raises(KeyError, match=r"tests/e2e/test_new\.py has tests marked `long`"):
        rota.runs("1", "e2e/test_new.py")


def test_the_parts_take_turns():
    commits = [hashlib.sha1(str(number).encode()).hexdigest() for number in range(3000)]
    shares = Counter(rota.part_of(commit) for commit in commits)
    assert set(shares) == set(rota.PARTS)
    assert all(shares[part] / 3000 == pytest.approx(1 / len(rota.PARTS), abs=0.03) for part in rota.PARTS)
    assert all(rota.runs(rota.ALL, file) for file in long_files())


def test_no_long_test_but_the_demo_begins_late(monkeypatch):
    lora, demo = "e2e/test_lora.py", "e2e/test_demo.py"
    # CI has set it for all tests, and may be late when this one runs.
    monkeypatch.delenv("LONG_TESTS_UNTIL", raising=False)
    assert not rota.too_late(lora)
    for until, late in [(time.time() + 60, False), (time.time() - 1, True)]:
        monkeypatch.setenv("LONG_TESTS_UNTIL", str(until))
        assert rota.too_late(lora) == late
        assert not rota.too_late(demo)
