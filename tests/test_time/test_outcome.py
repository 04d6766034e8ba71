"""What a user gets back for a test set, and what bad input gets."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.answers import MATHEMATICS, parse_kind
from restrain_openrlhf.evaluation.grade import mean_pass_at_k
from restrain_openrlhf.reference import ReferenceRow
from restrain_openrlhf.reference.prompts import Prompt
from test_time.outcome import BeforeAndAfter, _prediction, compare, predictions


def row(*answers):
    return ReferenceRow.of_answers(Prompt("p1", "p", "p", "line 1"), answers)


def test_a_prediction_names_the_vote_the_runner_up_and_what_changed():
    found = _prediction(row("1", "2", "2", None), row("3", "03", "2", "3"))
    assert (found.id, found.answer, found.vote_share) == ("p1", "3", 0.75)
    assert (found.runner_up, found.runner_up_share) == ("2", 0.25)
    assert (found.before, found.before_share, found.changed) == ("2", 0.5, True)


def test_the_same_answer_in_another_form_is_no_change():
    assert not _prediction(row("1/2", "1/2"), row("0.5", "0.50")).changed


@given(st.permutations(["1.0", "1.0", "1.00005", "1.00009", "2", "2", None]), st.permutations(["1.00005", "1", "3"]))
def test_the_order_of_equal_votes_changes_nothing(before, after):
    """1.0, 1.00005 and 1.00009 are one number within 1e-4; of tied classes, too, the order does not decide."""
    kind = parse_kind({"name": "number"})
    votes = [ReferenceRow.of_answers(Prompt("p1", "p", "p", "here"), each, kind) for each in (before, after)]
    found = _prediction(*votes, kind)
    assert (found.before, found.answer, found.changed) == ("1.0", "1", False)
    assert (found.before_share, found.vote_share, found.runner_up) == (4 / 7, 2 / 3, "3")
    tied = [ReferenceRow.of_answers(Prompt("p1", "p", "p", "here"), each, kind) for each in ("25", "52")]
    assert not _prediction(*tied, kind).changed


def test_a_problem_without_any_answer_has_none():
    found = _prediction(row(None, None), row(None, None))
    assert (found.answer, found.vote_share, found.runner_up, found.changed) == (None, 0.0, None, False)


def test_predictions_come_in_the_order_of_the_problems(tmp_path):
    """Votes of several engines are joined shard by shard."""
    rows = {name: ReferenceRow.of_answers(Prompt(name, name, name, "here"), ["1"]) for name in "abc"}

    def votes(order):
        return SimpleNamespace(rows=tuple(rows[name] for name in order))

    assert [row.id for row in predictions(votes("acb"), votes("bac"), ["a", "b", "c"], MATHEMATICS)] == ["a", "b", "c"]


def predicted(name, before, after):
    return _prediction(row(*before), row(*after)).model_copy(update={"id": name})


PREDICTED = [
    predicted("p1", ("5", "5", "4"), ("5", "5", "5")),
    predicted("p2", ("7", "8", "8"), ("7", "7", "8")),
    predicted("p3", ("1", "1", "1"), ("9", "9", "1")),
    predicted("p4", (None, "2", None), (None, None, None)),
]
GOLD = {"p1": "5", "p2": "7.0", "p3": "1", "p4": "3"}


def compared(gold, greedy):
    return compare(PREDICTED, gold, greedy, MATHEMATICS, {name: {} for name in GOLD})


def test_solved_kept_and_lost_worked_by_hand():
    found = compared(dict(reversed(GOLD.items())), 0.5)
    assert (found.solved, found.kept, found.lost) == (("p2",), 1, ("p3",))
    assert (found.problems, found.right, found.right_before, found.greedy_before) == (4, 2, 2, 0.5)


@pytest.mark.parametrize(("greedy", "better"), [(0.25, False), (0.5, False), (0.75, True)])
def test_the_base_model_is_better_where_any_way_to_ask_it_is(greedy, better):
    assert compared(GOLD, greedy).base_is_better is better
    worse = compared({**GOLD, "p2": "8"}, 0.0)
    assert (worse.right, worse.right_before, worse.base_is_better) == (1, 3, True)


@pytest.mark.parametrize("right", [7, 25, 83])
def test_as_many_right_answers_as_the_base_models_greedy_ones_are_neither_better_nor_worse(right):
    """Of 83 problems, as AMC has: 25 / 83 * 83 is above 25, and 7 / 83 * 83 below 7."""
    greedy = mean_pass_at_k(1, [1] * right + [0] * (83 - right), 1)
    counts = {"problems": 83, "right": right, "right_before": 0, "kept": 0}
    found = BeforeAndAfter(**counts, greedy_before=greedy, solved=(), lost=())
    assert (found.base_is_better, found.is_better) == (False, False)
