"""From classes to votes, and what is refused because it is no vote."""

import pytest

from restrain_openrlhf.errors import GroupError, ReferencePassError
from restrain_openrlhf.method import PromptFacts, ReferenceVote, build, parse_settings
from restrain_openrlhf.method.types import count_votes


def test_votes_count_labels_and_missing_answers():
    votes = count_votes([0, 1, None, 0, None])
    assert (votes.n, votes.counts, votes.majority_count) == (5, (2, 1), 2)
    assert votes.shares == pytest.approx([0.4, 0.2])


def test_a_group_without_answers_has_no_majority():
    votes = count_votes([None, None])
    assert (votes.counts, votes.majority_count, votes.effective_labels) == ((), 0, 0.0)


def test_effective_labels_of_an_uneven_vote():
    """exp(−.75 ln .75 − .25 ln .25) = exp(.5623)."""
    assert count_votes([0, 0, 0, 1]).effective_labels == pytest.approx(1.7548, abs=1e-4)


@pytest.mark.parametrize("classes", [[0, 2], [1, 1], [-1, 0], ["a"], []])
def test_labels_that_are_not_numbered_without_gaps_and_an_empty_group_are_refused(classes):
    with pytest.raises(GroupError, match="without gaps" if classes else "no rollouts"):
        count_votes(classes)


@pytest.mark.parametrize("label", [-1, 2])
def test_a_pseudo_label_the_group_does_not_have_is_refused(label):
    with pytest.raises(GroupError, match=f"class {label}"):
        build(parse_settings({"name": "grpo_gold"})).score([0, 1], PromptFacts(gold_class=label))


@pytest.mark.parametrize(("majority", "n"), [(0, 0), (17, 16), (-1, 16)])
def test_a_reference_that_is_no_vote_is_refused(majority, n):
    with pytest.raises(ReferencePassError, match="which is impossible"):
        ReferenceVote(majority, n)
