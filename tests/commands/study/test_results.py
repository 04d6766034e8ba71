"""Tables and pictures of a study, from files as its runs leave them."""

import csv
import json

import numpy as np
import pytest

from restrain_openrlhf.commands.study import (
    accuracies,
    plan_study,
    write_study,
)
from restrain_openrlhf.errors import RunError

FLAGS = "openrlhf: {eval.dataset: held.jsonl, eval.steps: 1, data.label_key: answer}"


@pytest.fixture
def study(tmp_path):
    def study(methods, seeds=2):
        paths = []
        for name, method in methods.items():
            path = tmp_path / "group" / f"{name}.yaml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"run_dir: x\nmethod: {method}\n{FLAGS}\n")
            paths.append(path)
        return plan_study(paths, seeds, tmp_path / "out")

    return study


def evaluated(run, by_step):
    run.config.run_dir.mkdir(parents=True)
    rows = [{"step": step, "eval_default_pass1": value, "eval_num_samples": 1600} for step, value in by_step.items()]
    (run.config.run_dir / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    metrics = {"step": max(by_step), "votes": {"majority_share_mean": 0.75, "top_answer_share": 0.25}}
    (run.config.run_dir / "metrics.jsonl").write_text(json.dumps(metrics) + "\n")


def test_a_curve_is_the_mean_over_seeds_of_the_steps_they_share(study):
    one, other = study({"ttrl": "{name: ttrl}"})
    evaluated(one, {0: 0.5, 5: 0.6, 10: 0.8})
    evaluated(other, {0: 0.5, 5: 0.8})
    (curve,) = accuracies([one, other])
    assert curve.steps == (0, 5)
    assert curve.mean == pytest.approx([0.5, 0.7])
    assert curve.deviation == pytest.approx([0, np.sqrt(0.02)])


def test_the_table_and_pictures_are_written(study, tmp_path):
    runs = study({"half": "{name: restrain}", "zero": "{name: restrain, sigma: 0}"})
    for run, accuracy in zip(runs, (0.6, 0.3, 0.8, 0.3), strict=True):
        evaluated(run, {0: 0.5, 10: accuracy, 20: accuracy - 0.1})
    write_study(runs, tmp_path / "out")
    rows = list(csv.DictReader((tmp_path / "out" / "table.csv").open()))
    half = {**rows[0]}
    assert [half[key] for key in ("group", "method", "seeds", "before", "after", "best", "at step", "steps")] == [
        "group", "half", "2", "50.0%", "60.0%", "70.0%", "10", "20",
    ]  # fmt: skip
    assert half["sd"] == "14.1%"
    assert "| group | half | 2 |" in (tmp_path / "out" / "table.md").read_text()
    assert {path.name for path in (tmp_path / "out").glob("*.png")} == {"curves.png"}


def test_a_study_without_any_evaluation_says_so(study, tmp_path):
    with pytest.raises(RunError, match="no run has an evaluation yet"):
        write_study(study({"ttrl": "{name: ttrl}"}), tmp_path / "out")
