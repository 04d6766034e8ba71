"""How the policies of a study voted, by step, from files as its runs leave them."""

import json

import numpy as np
import pytest

from restrain_openrlhf.commands.study.plan import plan_study
from restrain_openrlhf.commands.study.report import draw
from restrain_openrlhf.commands.study.results import MAJ_AT_K, WINDOW, maj_at_k, read_gold, votes
from restrain_openrlhf.errors import ConfigError, DataError
from tests.view.runs import boxed, scored_group, write_run

FLAGS = "openrlhf: {eval.dataset: held.jsonl, eval.steps: 1, data.label_key: answer}"
GOLD = [{"problem": "What is 1+1?", "answer": "2"}, {"problem": "What is 2+2?", "answer": "4"}]
QUANTITIES = ("mean majority share", "entropy, nats per token", "most common majority across prompts")


@pytest.fixture
def runs(tmp_path):
    source = tmp_path / "group" / "ttrl.yaml"
    source.parent.mkdir()
    source.write_text(f"run_dir: x\nmethod: {{name: ttrl}}\n{FLAGS}\n")
    return plan_study([source], 2, tmp_path / "out")


@pytest.fixture
def gold(tmp_path, runs):
    path = tmp_path / "gold.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in GOLD))
    return read_gold([path], runs)


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


def one_and_two(step, ones, twos):
    """The groups of a step: the answers to 1+1 and to 2+2."""
    return [
        scored_group(step, 0, "What is 1+1?", boxed(*ones)),
        scored_group(step, 1, "What is 2+2?", boxed(*twos)),
    ]


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


def test_maj_at_k_is_the_share_of_a_steps_groups_whose_majority_is_right(tmp_path, gold):
    run = tmp_path / "run"
    write_run(
        run,
        [
            *one_and_two(1, ["2", "2", "3"], ["5", "5", "4"]),
            *one_and_two(2, ["2", "2", "2"], ["4", "4", None]),
            # A prompt without gold, and groups without an answer.
            scored_group(2, 2, "What is 3+3?", boxed("7", "7")),
            *one_and_two(3, [None, None], ["3", "4", "3"]),
        ],
    )
    assert maj_at_k(run, gold) == {1: 0.5, 2: 1.0, 3: 0.0}
    assert maj_at_k(tmp_path / "none", gold) == {}


def test_with_gold_there_is_maj_at_k_of_the_seeds_that_kept_rollouts(runs, gold):
    for run in runs:
        logged(run, [0.5])
    write_run(runs[1].config.run_dir, one_and_two(1, ["2"], ["5"]))
    found = {curve.quantity: curve for curve in votes(runs, gold)}
    assert tuple(found) == (*QUANTITIES, MAJ_AT_K)
    assert found[MAJ_AT_K].values.tolist() == [[0.5]]
    figure = draw({quantity: [curve] for quantity, curve in found.items()})
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == [*QUANTITIES, MAJ_AT_K]
    assert list(figure.axes[3].lines[0].get_ydata()) == [0.5]


def test_gold_of_other_prompts_is_refused(runs, tmp_path):
    logged(runs[0], [0.5])
    write_run(runs[0].config.run_dir, one_and_two(1, ["2"], ["4"]))
    with pytest.raises(DataError, match="no answer to any prompt of the runs' kept rollouts"):
        votes(runs, {"another": "1"})


def test_gold_without_kept_rollouts_is_refused_before_anything_runs(tmp_path):
    source = tmp_path / "group" / "ttrl.yaml"
    source.parent.mkdir()
    source.write_text(f"run_dir: x\nmethod: {{name: ttrl}}\nrollouts: {{keep: none}}\n{FLAGS}\n")
    runs = plan_study([source], 1, tmp_path / "out")
    assert read_gold([], runs) is None
    with pytest.raises(ConfigError, match=r"no run keeps any. Set rollouts.keep"):
        read_gold([tmp_path / "gold.jsonl"], runs)
