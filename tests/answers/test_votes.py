"""One count of a group's answers: what is ranked first is the majority of artifacts, scores, accuracies and reports."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.answers import MATHEMATICS, GroupAnswers
from restrain_openrlhf.errors import GroupError

# Two spellings each of two answers, a third answer, and a missing one.
ANSWERS = st.lists(st.sampled_from(["1/2", "0.5", "7", "7.0", "x", None]), min_size=1, max_size=12)


def group_of(answers):
    return GroupAnswers.of(MATHEMATICS, answers, {})


@given(ANSWERS)
def test_the_first_rollouts_are_a_group_of_their_own(answers):
    for n in range(1, len(answers) + 1):
        assert group_of(answers).first(n) == group_of(answers[:n])


@given(ANSWERS)
def test_answers_are_ranked_by_votes_and_ties_by_appearance(answers):
    group = group_of(answers)
    ranked, votes = group.ranked(), group.votes
    places = [answers.index(answer) for answer, _ in ranked]
    assert ranked == [ranked[rank] for rank in sorted(range(len(ranked)), key=lambda r: (-ranked[r][1], places[r]))]
    assert sorted(count for _, count in ranked) == sorted(votes.counts)
    assert sum(votes.counts) == len(answers) - answers.count(None)
    assert group.majority == (ranked[0][0] if ranked else None)


def test_equal_answers_are_one_and_are_shown_as_first_written():
    assert group_of(["7", "1/2", None, "0.5"]).ranked() == [("1/2", 2), ("7", 1)]
    assert group_of([None, None]).ranked() == []
    assert group_of([None, "7", None]).majority == "7"


def test_a_group_without_rollouts_has_no_votes():
    with pytest.raises(GroupError, match="nothing to vote on"):
        group_of([]).votes  # noqa: B018


def test_a_truncated_rollout_has_no_answer():
    assert MATHEMATICS.voted_answer(r"\boxed{7}", False, {}) == "7"
    assert MATHEMATICS.voted_answer(r"\boxed{7}", True, {}) is None
