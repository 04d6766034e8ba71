"""One count of a group's answers: its majority is that of artifacts, scores, accuracies and reports."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.answers import MATHEMATICS, GroupAnswers
from restrain_openrlhf.answers.shown import Responses
from restrain_openrlhf.answers.votes import MissingSoFar
from restrain_openrlhf.errors import GroupError

# Two spellings each of two answers, a third answer, and a missing one.
ANSWERS = st.lists(st.sampled_from(["1/2", "0.5", "7", "7.0", "x", None]), min_size=1, max_size=12)


def group_of(answers):
    return GroupAnswers.of(MATHEMATICS, answers, {})


@given(ANSWERS, st.randoms(use_true_random=False))
def test_answers_are_ranked_by_votes_and_then_by_themselves_in_any_order_of_rollouts(answers, chance):
    group = group_of(answers)
    ranked, votes = group.ranked(), group.votes
    assert ranked == sorted(ranked, key=lambda each: (-each[1], each[0]))
    assert sorted(count for _, count in ranked) == sorted(votes.counts)
    assert sum(votes.counts) == len(answers) - answers.count(None)
    again = group_of(chance.sample(answers, len(answers)))
    assert again.ranked() == ranked
    assert sorted(again.representatives()) == sorted(group.representatives())


def test_equal_answers_are_one_and_are_shown_as_most_write_it():
    """1/2 and 0.5 are one answer; of equally frequent spellings the shortest is shown, of tied classes the first."""
    assert group_of(["7", "1/2", None, "0.5", "1/2"]).ranked() == [("1/2", 3), ("7", 1)]
    assert group_of(["07.0", "7", "07"]).majority == "7"
    assert group_of(["x", "7", "7", "x"]).majority == "x"
    assert group_of([None, None]).ranked() == []
    assert group_of([None, "7", None]).majority == "7"


def test_a_group_without_rollouts_has_no_votes():
    with pytest.raises(GroupError, match="nothing to vote on"):
        group_of([]).votes  # noqa: B018


def test_a_pass_whose_responses_were_all_cut_off_says_so_and_compares_no_kinds():
    missing = MissingSoFar()
    missing.add(Responses.of(["It is", "So"], [True, True], {}), [None, None])
    warning = missing.warning("the rollouts", MATHEMATICS)
    assert "Each of them was cut off at the length limit." in warning
    assert "reads" not in warning
    missing.add(Responses.of(["None.", "7"], [False, False], {}), [None, 0])
    assert "Not read, by their ends: 'None.'" in missing.warning("the rollouts", MATHEMATICS)
