"""What a user gets back for a test set, and what bad input gets."""

from types import SimpleNamespace

from restrain_openrlhf.hook.prompts import Prompt
from restrain_openrlhf.reference import ReferenceRow
from test_time.outcome import _prediction, predictions


def row(*answers):
    return ReferenceRow.of_answers(Prompt("p1", "p", "p", "line 1"), answers)


def test_a_prediction_names_the_vote_the_runner_up_and_what_changed():
    found = _prediction(row("1", "2", "2", None), row("3", "03", "2", "3"))
    assert (found.id, found.answer, found.vote_share) == ("p1", "3", 0.75)
    assert (found.runner_up, found.runner_up_share) == ("2", 0.25)
    assert (found.before, found.before_share, found.changed) == ("2", 0.5, True)


def test_the_same_answer_in_another_form_is_no_change():
    assert not _prediction(row("1/2", "1/2"), row("0.5", "0.50")).changed


def test_a_problem_without_any_answer_has_none():
    found = _prediction(row(None, None), row(None, None))
    assert (found.answer, found.vote_share, found.runner_up, found.changed) == (None, 0.0, None, False)


def test_predictions_come_in_the_order_of_the_problems(tmp_path):
    """Votes of several engines are joined shard by shard."""
    rows = {name: ReferenceRow.of_answers(Prompt(name, name, name, "here"), ["1"]) for name in "abc"}

    def votes(order):
        return SimpleNamespace(rows=tuple(rows[name] for name in order))

    assert [row.id for row in predictions(votes("acb"), votes("bac"), ["a", "b", "c"])] == ["a", "b", "c"]
