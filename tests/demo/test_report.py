"""The demo's report: what it says of each method that ran in the folder, and how the base model's majorities fared."""

import pytest

from restrain_openrlhf.demo.problems import write_gold
from restrain_openrlhf.demo.report import (
    MethodResult,
    base_reliability,
    results_in,
    sentence,
    train_folder,
    write_report,
)
from restrain_openrlhf.demo.tasks import PREMISE
from restrain_openrlhf.evaluation.result import Accuracy
from restrain_openrlhf.hook.trainer import append_step
from restrain_openrlhf.run.metrics import HELD_OUT_FILE
from restrain_openrlhf.tracking.writers import write_row
from tests.hook.test_trainer_metrics import votes
from tests.reference.made import write_reference


def accuracy(value):
    return Accuracy(value, value - 0.02, value + 0.02, min(1.0, value + 0.2), 16, 200, 0.01)


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
        write_row(run / HELD_OUT_FILE, 0, {"eval_default_pass1": 0.5, "eval_num_samples": 1600}, None)
        write_row(run / HELD_OUT_FILE, 1, {"eval_default_pass1": after, "eval_num_samples": 1600}, None)
        MethodResult(method, accuracy(0.5), accuracy(after)).write(tmp_path / method)
    return tmp_path


def test_a_report_has_a_sentence_for_each_method_and_opens_with_the_curves(demo):
    text = write_report(demo, PREMISE).read_text()
    assert "restrain: pass@1 on 200 held-out problems rose from 50.0% to 75.0%" in text
    assert "ttrl: pass@1 on 200 held-out problems fell from 50.0% to 30.0%" in text
    assert text.count("data:image/png") == 7
    assert text.index("<td>base model</td>") < text.index("<td>restrain</td>") < text.index("<td>ttrl</td>")
    assert text.index("Held-out pass@1 by training step") < text.index("Is the majority right?") < text.index("Votes")


def test_what_is_inside_the_interval_is_called_no_change(demo):
    same = MethodResult("ttrl", accuracy(0.5), accuracy(0.51))
    assert "hardly moved, from 50.0% to 51.0%" in sentence(same, train_folder(demo, "ttrl"))


def test_results_come_back_as_they_were_written(demo):
    assert [result.method for result in results_in(demo)] == ["restrain", "ttrl"]
    assert MethodResult.read(demo / "ttrl" / "result.json").after == accuracy(0.3)


def test_reliability_counts_the_base_models_majorities_by_size(demo):
    assert [(row.size, row.problems, row.majority_accuracy) for row in base_reliability(demo)] == [
        (2, 1, 0.0),
        (3, 1, 1.0),
    ]
