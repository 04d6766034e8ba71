"""How the policies of a study voted, by step, from files as its runs leave them."""

import json

import numpy as np
import pytest

from restrain_openrlhf.commands.study.plan import plan_study
from restrain_openrlhf.commands.study.results import WINDOW, votes

FLAGS = "openrlhf: {eval.dataset: held.jsonl, eval.steps: 1, data.label_key: answer}"
QUANTITIES = ("mean majority share", "entropy, nats per token", "most common majority across prompts")


@pytest.fixture
def runs(tmp_path):
    source = tmp_path / "group" / "ttrl.yaml"
    source.parent.mkdir()
    source.write_text(f"run_dir: x\nmethod: {{name: ttrl}}\n{FLAGS}\n")
    return plan_study([source], 2, tmp_path / "out")


def logged(run, shares):
    """metrics.jsonl with one majority share a step, from step 1 on."""
    run.config.run_dir.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "step": step,
            "restrain/policy_loss": 0.0,
            "restrain/policy_entropy": 2 * share,
            "votes": {"majority_share_mean": share, "top_answer_share": share / 2},
        }
        for step, share in enumerate(shares, start=1)
    ]
    (run.config.run_dir / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_point_is_the_mean_of_some_steps_that_all_seeds_have(runs):
    logged(runs[0], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
    logged(runs[1], [0.3] * 6)
    found = {curve.quantity: curve for curve in votes(runs)}
    assert tuple(found) == QUANTITIES
    share = found["mean majority share"]
    assert (share.group, share.name, share.steps) == ("group", "ttrl", (WINDOW, WINDOW + 1))
    assert share.values == pytest.approx(np.array([[0.3, 0.6], [0.3, 0.3]]))
    assert share.mean == pytest.approx([0.3, 0.45])
    assert found["entropy, nats per token"].mean == pytest.approx([0.6, 0.9])
    assert found["most common majority across prompts"].mean == pytest.approx([0.15, 0.225])
