"""`test-time adapt` from start to end: votes, training, votes again, an answer for every problem."""

import json
import sys

import pytest

from restrain_openrlhf.demo.run import MODEL
from restrain_openrlhf.demo.task import heldout_problems, write_gold, write_prompts
from tests.conftest import ROOT
from tests.e2e.conftest import SMALL, run

pytest.importorskip("openrlhf", reason="needs the training stack")
pytestmark = [pytest.mark.host, pytest.mark.e2e, pytest.mark.timeout(1200)]


def test_a_test_set_without_answers_gets_answers(tmp_path):
    problems = heldout_problems(16)
    write_prompts(tmp_path / "test.jsonl", problems)
    write_gold(tmp_path / "gold.jsonl", problems[::-1])
    sets = [word for name, value in SMALL.items() for word in ("--set", f"openrlhf.{name}={value}")]
    config = ROOT / "configs" / "cpu" / "demo.yaml"
    paths = ("--model", MODEL, "--prompts", tmp_path / "test.jsonl", "--out", tmp_path / "out", "--config", config)
    words = ["adapt", *map(str, paths), "--gold", str(tmp_path / "gold.jsonl"), *sets]
    done = run([sys.executable, "-m", "test_time.cli", *words])
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [problem.id for problem in problems]
    assert all(row["answer"] is not None and 0 < row["vote_share"] <= 1 for row in rows)
    assert (tmp_path / "out" / "train" / "model" / "model.safetensors").exists()
    (comparison,) = [json.loads(line) for line in (tmp_path / "out" / "comparison.jsonl").read_text().splitlines()]
    assert comparison["problems"] == 16
    assert 0 < comparison["pass_before"] < 1
    assert (tmp_path / "out" / "report.html").read_text().count("data:image/png") == 4
    assert "gold.jsonl" not in (tmp_path / "out" / "train" / "run.json").read_text()
