"""One count of a group's answers: what is ranked first is the majority of artifacts, scores, accuracies and reports."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.answers import final_answer
from restrain_openrlhf.answers.votes import majority_answer, ranked_answers, votes_of
from restrain_openrlhf.errors import GroupError

# Two spellings each of two answers, a third answer, and a missing one.
ANSWERS = st.lists(st.sampled_from(["1/2", "0.5", "7", "7.0", "x", None]), min_size=1, max_size=12)


@given(ANSWERS)
def test_answers_are_ranked_by_votes_and_ties_by_appearance(answers):
    ranked, votes = ranked_answers(answers), votes_of(answers)
    places = [answers.index(answer) for answer, _ in ranked]
    assert ranked == [ranked[rank] for rank in sorted(range(len(ranked)), key=lambda r: (-ranked[r][1], places[r]))]
    assert sorted(count for _, count in ranked) == sorted(votes.counts)
    assert sum(votes.counts) == len(answers) - answers.count(None)
    assert majority_answer(answers) == (ranked[0][0] if ranked else None)


def test_equal_answers_are_one_and_are_shown_as_first_written():
    assert ranked_answers(["7", "1/2", None, "0.5"]) == [("1/2", 2), ("7", 1)]
    assert ranked_answers([None, None]) == []
    assert majority_answer([None, "7", None]) == "7"


def test_a_group_without_rollouts_has_no_votes():
    with pytest.raises(GroupError, match="nothing to vote on"):
        votes_of([])


def test_a_truncated_rollout_has_no_answer():
    assert final_answer(r"\boxed{7}", truncated=False) == "7"
    assert final_answer(r"\boxed{7}", truncated=True) is None
