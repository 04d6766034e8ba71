"""The demo's report: what it says of each method that ran in the folder, and how the base model's majorities fared."""

import pytest

from restrain_openrlhf.commands.demo.run import (
    MethodResult,
    base_reliability,
    results_in,
    train_folder,
    write_report,
)
from restrain_openrlhf.data.demo_tasks.problems import write_gold
from restrain_openrlhf.data.demo_tasks.tasks import PREMISE
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.evaluation.result import Scores
from restrain_openrlhf.hook.logging.trainer import append_step
from restrain_openrlhf.records.metrics import HELD_OUT_FILE, append_row
from tests.hook.test_trainer_metrics import votes
from tests.reference.made import write_reference


def accuracy(value):
    votes = {16: min(1.0, value + 0.2)}
    return Scores(
        pass_at_1=value, low=value - 0.02, high=value + 0.02, pass_at_k={}, maj_at_k=votes, missing_share=0.01
    )


def made(method, after):
    return MethodResult(
        method=method, problems=200, k=16, before=accuracy(0.5), after=accuracy(after), top_answer_share=0.1
    )


@pytest.fixture
def demo(tmp_path):
    """A folder in which ttrl, then restrain ran one step on two problems."""
    problems = PREMISE.training_set(2)
    write_gold(tmp_path / "prompts-with-gold.jsonl", problems)
    right, wrong = problems[0].answer, "?"
    answers = ([right, right, right, wrong], [wrong, wrong, problems[1].answer, None])
    asked = [problem.problem for problem in problems]
    write_reference(tmp_path / "reference.jsonl", dict(zip(asked, answers, strict=True)))
    for method, after in (("ttrl", 0.3), ("restrain", 0.75)):
        run = train_folder(tmp_path, method)
        run.mkdir(parents=True)
        append_step(run / "metrics.jsonl", 1, {"kl": 0.1}, votes())
        append_row(run / HELD_OUT_FILE, 0, {"eval_default_pass1": 0.5, "eval_num_samples": 1600})
        append_row(run / HELD_OUT_FILE, 1, {"eval_default_pass1": after, "eval_num_samples": 1600})
        made(method, after).write(tmp_path / method)
    return tmp_path


def test_a_report_has_a_sentence_for_each_method_and_opens_with_the_curves(demo):
    text = write_report(demo, PREMISE).read_text()
    assert "restrain: pass@1 on 200 held-out problems rose from 50.0% (base model) to 75.0% (trained model)" in text
    assert "ttrl: pass@1 on 200 held-out problems fell from 50.0% (base model) to 30.0% (trained model)" in text
    assert text.count("data:image/png") == 5
    assert text.index("<td>base model</td>") < text.index("<td>restrain</td>") < text.index("<td>ttrl</td>")
    assert text.index("Held-out pass@1 by training step") < text.index("Is the majority right?") < text.index("Votes")


def test_results_come_back_as_they_were_written(demo):
    assert [result.method for result in results_in(demo)] == ["restrain", "ttrl"]
    kept = demo / "ttrl" / "result.json"
    assert MethodResult.read(kept) == made("ttrl", 0.3)
    kept.write_text("{}")
    with pytest.raises(RunError, match="is not a result of this version's demo"):
        results_in(demo)


def test_reliability_counts_the_base_models_majorities_by_size(demo):
    assert [(row.size, row.problems, row.majority_accuracy) for row in base_reliability(demo)] == [
        (2, 1, 0.0),
        (3, 1, 1.0),
    ]
