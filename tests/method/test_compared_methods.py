"""Frequency, RENT, SCRL and GMAE₀ against their formulas, written out naively, and against groups worked by hand."""

import itertools
import math
from collections import Counter
from statistics import fmean, pstdev

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from restrain_openrlhf.errors import GroupError
from restrain_openrlhf.method import PromptFacts
from tests.method.test_baselines import GROUPS, grpo, method, numbered

EXACT = {"std": "population", "eps": 0.0}


def entropies_for(labels):
    return st.lists(st.floats(0.01, 3), min_size=len(labels), max_size=len(labels)).map(tuple)


@given(GROUPS)
def test_frequency_is_grpo_on_the_share_of_a_rollouts_answer(labels):
    rewards = [0 if label is None else labels.count(label) / len(labels) for label in labels]
    assert method(name="frequency").score(labels).pair.net == pytest.approx(grpo(rewards))


def test_a_group_of_frequency_worked_by_hand():
    """Shares 1/2, 1/2, 1/4 and 0 for the missing: mean 5/16, and A times 16 · std is 3, 3, -1, -5: std √11 / 16."""
    found = method(name="frequency", **EXACT).score([0, 0, 1, None]).pair.net
    assert found == pytest.approx([each / math.sqrt(11) for each in (3, 3, -1, -5)])


@given(GROUPS, st.data())
def test_rent_is_grpo_on_minus_the_entropy_whatever_the_answers(labels, data):
    entropies = data.draw(entropies_for(labels))
    found = method(name="rent", rollouts=len(labels)).score(labels, PromptFacts(entropies=entropies))
    assert found.pair.net == pytest.approx(grpo([-h for h in entropies]), abs=1e-6)


def test_a_group_of_rent_worked_by_hand():
    """H = 1, 2, 2, 3: rewards 1, 0, 0, -1 above their mean, std 1/√2."""
    rent = method(name="rent", rollouts=4, **EXACT)
    found = rent.score([None, 0, 0, 0], PromptFacts(entropies=(1, 2, 2, 3)))
    assert found.pair.net == pytest.approx([math.sqrt(2), 0, 0, -math.sqrt(2)])
    with pytest.raises(GroupError, match="mean token entropy of each of 4 rollouts, but found none"):
        rent.score([None, 0, 0, 0])


def scrl_rewards(labels, entropies=None, *, positive=0.375, margin=0.125, rare=0.125, penalty=0.1):
    """The text's three steps, answer by answer."""
    n, counts = len(labels), Counter(label for label in labels if label is not None)
    ranked = counts.most_common()
    second = ranked[1][1] if len(ranked) > 1 else 0
    strong = ranked and ranked[0][1] / n >= positive and (ranked[0][1] - second) / n > margin
    rewards = {None: -1.0, **dict.fromkeys(counts, 0.0)}
    for label, count in counts.items():
        of_label = [h for h, of in zip(entropies or labels, labels, strict=True) if of == label]
        above = fmean(of_label) - fmean(entropies) if entropies else 0.0
        if strong and label == ranked[0][0]:
            rewards[label] = count / n
        elif count / n < rare and above >= 0:
            rewards[label] = count / n - rare
        rewards[label] -= penalty * above
    return [rewards[label] for label in labels]


@given(st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4, 5, None]), min_size=2, max_size=20), st.data())
def test_scrl_is_grpo_on_its_rewards(raw, data):
    labels = numbered(raw)
    assert method(name="scrl").score(labels).pair.net == pytest.approx(grpo(scrl_rewards(labels)), abs=1e-6)
    entropies = data.draw(entropies_for(labels))
    gated = method(name="scrl", votes=len(labels), entropy_top_k=20).score(labels, PromptFacts(entropies=entropies))
    assert gated.rewards == pytest.approx(scrl_rewards(labels, entropies))


def test_groups_of_scrl_worked_by_hand():
    """Of 16: 8 believed (.5), 4 neither, 4 alone and negative (1/16 - 1/8). 6 lead 4 by .125, which is too little."""
    strong = method(name="scrl").score([0] * 8 + [1] * 4 + [2, 3, 4, 5])
    assert strong.rewards.tolist() == [0.5] * 8 + [0] * 4 + [-1 / 16] * 4
    assert strong.penalized == 0.25
    # Exactly at both shares, 6 of 16 are believed and 2 of 16 are not negative.
    at = method(name="scrl").score([0] * 6 + [1] * 3 + [2] * 2 + [3, 4, 5, 6, 7])
    assert at.rewards.tolist() == [6 / 16] * 6 + [0] * 5 + [-1 / 16] * 5
    assert at.penalized == 5 / 16
    weak = method(name="scrl", **EXACT).score([0] * 6 + [1] * 4 + [2] * 4 + [3, 4])
    assert weak.rewards.tolist() == [0] * 14 + [-1 / 16] * 2
    # Without an answer is worse than with a rare one.
    assert method(name="scrl").score([0] * 8 + [1] * 6 + [2, None]).rewards.tolist()[-2:] == [-1 / 16, -1]
    # Two of 16 are below: shares 1/8 and 7/8, std √7 / 8.
    assert weak.pair.net[[0, -1]] == pytest.approx([1 / math.sqrt(7), -math.sqrt(7)])


def test_scrl_spares_a_rare_answer_that_is_sure():
    """H̄ = 1. The rare answers have H .5 and 1.5: only the second is negative."""
    gated = method(name="scrl", votes=16, entropy_top_k=20, entropy_penalty=0.2)
    found = gated.score([0] * 8 + [1] * 6 + [2, 3], PromptFacts(entropies=(*[1.0] * 14, 0.5, 1.5)))
    assert found.rewards[[8, 14, 15]] == pytest.approx([0, 0.1, -1 / 16 - 0.1])
    assert found.penalized == 1 / 16


def gmae0(labels, size):
    """Every context of every rollout is drawn up and voted on, then every outcome of all rollouts is normalised."""
    chances = []
    for place, label in enumerate(labels):
        wins = []
        for context in itertools.combinations(labels[:place] + labels[place + 1 :], size - 1):
            counts = Counter(each for each in (label, *context) if each is not None)
            best = [each for each, count in counts.items() if count == max(counts.values())]
            wins.append((label in best) / len(best) if best else 0)
        chances.append(fmean(wins))
    found = [0.0] * len(labels)
    for outcome in itertools.product((0, 1), repeat=len(labels)):
        likely = math.prod(p if one else 1 - p for p, one in zip(chances, outcome, strict=True))
        if 0 < sum(outcome) < len(labels):
            mean, std = fmean(outcome), pstdev(outcome)
            found = [a + likely * (one - mean) / std for a, one in zip(found, outcome, strict=True)]
    return chances, found


@given(GROUPS.filter(lambda labels: len(labels) <= 7), st.data())
def test_gmae0_averages_over_every_context_and_every_outcome(labels, data):
    size = data.draw(st.integers(1, len(labels)))
    found = method(name="gmae0", context=size, **EXACT).score(labels)
    chances, expected = gmae0(labels, size)
    assert found.rewards == pytest.approx(chances)
    assert found.pair.net == pytest.approx(expected, abs=1e-9)


def test_a_group_of_gmae0_worked_by_hand():
    """Contexts of 2 from 0 0 1. With its equal a 0 wins, with the 1 it ties: P = 3/4. The 1 always ties: P = 1/2.

    One 1 of three normalises to √2 and −1/√2 twice. Of the 1, E = ½ (1/16 √2 + 6/16 /√2) − ½ (6/16 /√2 + 9/16 √2).
    """
    found = method(name="gmae0", context=2, **EXACT).score([0, 0, 1])
    assert found.label_weights == pytest.approx([3 / 4, 1 / 2])
    assert found.pair.net == pytest.approx([math.sqrt(2) / 8] * 2 + [-math.sqrt(2) / 4])


@given(GROUPS)
def test_gmae0_with_all_voters_in_each_context_is_ttrl(labels):
    counts = sorted(Counter(label for label in labels if label is not None).values())
    assume(counts[-2:-1] != counts[-1:])
    whole = method(name="gmae0", context=len(labels)).score(labels)
    assert whole.pair.net == pytest.approx(method(name="ttrl").score(labels).pair.net)


def test_gmae0_votes_on_all_and_trains_on_the_first():
    found = method(name="gmae0", votes=6, train_on=3).score([0, 1, 1, 0, 0, 0])
    assert found.rewards == pytest.approx(gmae0([0, 1, 1, 0, 0, 0], 3)[0][:3])
    with pytest.raises(GroupError, match="A context of 9 rollouts needs as many votes, but 6 vote"):
        method(name="gmae0", context=9).score([0] * 6)
