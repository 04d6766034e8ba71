"""The main job, as `make demo` runs it: a model gets better by RL with no labels."""

import json

import pytest

from restrain_openrlhf.demo.run import Demo, Listener, run_demo
from tests.e2e.conftest import restrain, run

pytest.importorskip("openrlhf", reason="needs the training stack (make install)")
pytestmark = [pytest.mark.host, pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1800)]


def test_restrain_improves_held_out_accuracy_without_gold(tmp_path):
    done = run(restrain("demo", "--out", tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    outcome = run_demo(Demo(tmp_path, "restrain", steps=20), Listener())
    assert outcome.after.pass_at_1 - outcome.before.pass_at_1 >= 0.08
    assert outcome.report.read_text().count("data:image/png") == 5
    assert (outcome.model / "model.safetensors").exists()
    prompts = (tmp_path / "prompts.jsonl").read_text()
    assert "answer" not in prompts
    resolved = json.loads((tmp_path / "restrain" / "train" / "run.json").read_text())
    assert "data.label_key" not in resolved["openrlhf"]


def test_the_pipeline_takes_real_problems(shared, tmp_path):
    words = ("--prompts", shared / "benchmarks" / "amc23.jsonl", "--steps", 2, "--out", tmp_path)
    done = run(restrain("demo", *words))
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in (tmp_path / "restrain" / "train" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    assert rows[0]["votes"]["voters"] == 128
