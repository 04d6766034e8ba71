"""TTRL, SRT, ETTRL and GRPO against the formulas of their papers, written out naively, and against worked groups."""

import itertools
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.errors import GroupError
from restrain_openrlhf.method import PromptFacts, ReferenceVote, build, parse_settings


def numbered(labels):
    """Numbered by first appearance, as answers.classes does."""
    order = list(dict.fromkeys(label for label in labels if label is not None))
    return [None if label is None else order.index(label) for label in labels]


GROUPS = st.lists(st.integers(0, 3) | st.none(), min_size=2, max_size=12).map(numbered)


def method(**settings):
    return build(parse_settings(settings))


def grpo(rewards):
    """GRPO: (r_i − mean) / (std + 1e-6), the std of n − 1, and 0 for a group of equal rewards."""
    if len(set(rewards)) == 1:
        return [0.0] * len(rewards)
    mean, std = statistics.fmean(rewards), statistics.stdev(rewards)
    return [(reward - mean) / (std + 1e-6) for reward in rewards]


def first_majority(labels):
    """TTRL: the most common answer; of equally common ones the first to appear (Counter.most_common)."""
    present = [label for label in labels if label is not None]
    return max(dict.fromkeys(present), key=present.count, default=None)


def rewards_for(label, labels):
    return [float(label is not None and answer == label) for answer in labels]


@given(GROUPS)
def test_ttrl_is_grpo_on_the_majority_of_the_group(labels):
    expected = grpo(rewards_for(first_majority(labels), labels))
    assert method(name="ttrl").score(labels).pair.net == pytest.approx(expected)


@given(GROUPS, st.data())
def test_ttrl_votes_on_all_and_normalises_over_those_it_trains_on(labels, data):
    n = data.draw(st.integers(2, len(labels)))
    score = method(name="ttrl", votes=len(labels), train_on=n).score(labels)
    assert score.pair.net == pytest.approx(grpo(rewards_for(first_majority(labels), labels[:n])))
    assert score.votes.n == len(labels)


@given(GROUPS, st.integers(0, 3))
def test_srt_offline_is_grpo_on_the_stored_label(labels, stored):
    known = stored if stored in labels else None
    facts = PromptFacts(reference=ReferenceVote(3, 4), stored_class=known)
    assert method(name="srt_offline").score(labels, facts).pair.net == pytest.approx(grpo(rewards_for(known, labels)))


@given(GROUPS, st.integers(0, 3))
def test_gold_grpo_is_grpo_on_the_gold_label(labels, gold):
    known = gold if gold in labels else None
    found = method(name="grpo_gold").score(labels, PromptFacts(gold_class=known))
    assert found.pair.net == pytest.approx(grpo(rewards_for(known, labels)))


def ettrl(n, **settings):
    """ETTRL on n leaves: trees of two."""
    return method(name="ettrl", trees=n // 2, forks=1, branches=1, **settings)


@given(GROUPS.filter(lambda labels: len(labels) % 2 == 0), st.data())
def test_ettrls_residual_scales_each_advantage_by_how_sure_its_rollout_was(labels, data):
    entropies = data.draw(st.lists(st.floats(0.01, 3), min_size=len(labels), max_size=len(labels)))
    mean = statistics.fmean(entropies)
    plain = grpo(rewards_for(first_majority(labels), labels))
    expected = [a * (1 + (mean - h) / mean) for a, h in zip(plain, entropies, strict=True)]
    facts = PromptFacts(entropies=tuple(entropies))
    assert ettrl(len(labels)).score(labels, facts).pair.net == pytest.approx(expected)


def test_a_group_of_ettrl_worked_by_hand():
    """Rewards 1 1 1 0, mean .75, population std .433: A = .577 and −1.732. H = 1 1 1 3, mean 1.5: factors 4/3 and 0."""
    group, facts = [0, 0, 0, 1], PromptFacts(entropies=(1.0, 1.0, 1.0, 3.0))
    exact = {"std": "population", "eps": 0.0}
    assert ettrl(4, **exact).score(group, facts).pair.net == pytest.approx([0.7698] * 3 + [0], abs=1e-4)
    assert ettrl(4, ear="none", **exact).score(group).pair.net == pytest.approx([0.5774] * 3 + [-1.7321], abs=1e-4)


def test_a_rollout_more_than_twice_as_unsure_as_its_group_changes_sign():
    score = ettrl(4, std="population", eps=0.0).score([0, 0, 0, 1], PromptFacts(entropies=(0.1, 0.1, 0.1, 3.7)))
    assert score.pair.positive[3] > 0
    assert score.pair.negative[3] == 0


def test_a_group_without_any_uncertainty_is_left_as_it_is():
    sure = ettrl(4).score([0, 0, 0, 1], PromptFacts(entropies=(0.0,) * 4))
    assert sure.pair.net.tolist() == method(name="ttrl").score([0, 0, 0, 1]).pair.net.tolist()


@pytest.mark.parametrize("entropies", [None, (1.0, 2.0)])
def test_residual_entropy_needs_an_entropy_of_every_rollout(entropies):
    with pytest.raises(GroupError, match="mean token entropy of each of 4 rollouts"):
        ettrl(4).score([0, 0, 0, 1], PromptFacts(entropies=entropies))


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_entropies_that_are_not_finite_end_the_run(broken):
    with pytest.raises(GroupError, match="must be finite"):
        ettrl(4).score([0, 0, 0, 1], PromptFacts(entropies=(1.0, 1.0, 1.0, broken)))


def test_a_group_of_another_size_than_the_method_draws_is_refused():
    with pytest.raises(GroupError, match=r"The group has 3 rollouts, but the method 'ttrl' votes on 4"):
        method(name="ttrl", votes=4, train_on=2).score([0, 0, 1])


def test_the_prompt_weights_sigma_can_be_its_own():
    facts = PromptFacts(reference=ReferenceVote(8, 16))
    weights = [
        method(name="restrain", sigma=sigma, prompt_sigma=own).score([0] * 12 + [1] * 4, facts).prompt_weight
        for sigma, own in itertools.product((0.5, 2.0), (None, 0.5))
    ]
    assert weights == pytest.approx([0.6065, 0.6065, 0.9692, 0.6065], abs=1e-4)
