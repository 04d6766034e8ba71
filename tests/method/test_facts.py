"""What docs/concepts/method.md states as facts that follow from the equations, each computed."""

from itertools import product

import numpy as np
import pytest

from restrain_openrlhf.method import PromptFacts, ReferenceVote, build, parse_settings

N = 16


def method(name="restrain", **settings):
    return build(parse_settings({"name": name, **settings}))


def majority_among_distinct(size):
    """A majority of `size` of 16, all other answers different from each other."""
    return [0] * size + list(range(1, N + 1 - size))


def groups(answers, n):
    """Every group of n rollouts of a policy over `answers`, with its classes numbered by first appearance."""
    for group in product(range(answers), repeat=n):
        numbers = {}
        yield group, [numbers.setdefault(answer, len(numbers)) for answer in group]


def softmax(logits):
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def chance(policy, group):
    return float(np.prod(policy[list(group)]))


def chance_below_kappa(logits, n, kappa):
    policy = softmax(logits)
    return sum(chance(policy, group) for group, _ in groups(logits.size, n) if np.bincount(group).max() < kappa)


def expected_penalty_gradient(logits, n, **settings):
    """The gradient that the policy climbs, of penalised groups alone: the sum over all groups of p(group) times
    (1/n) sum_i A_i grad log pi(o_i). The advantages are those of the method's own code.
    """
    policy, gradient = softmax(logits), np.zeros_like(logits)
    scored = method(prompt_weight=0.7, **settings)
    for group, classes in groups(logits.size, n):
        score = scored.score(classes)
        if score.penalized:
            directions = np.eye(logits.size)[list(group)] - policy
            gradient += chance(policy, group) * (score.pair.net @ directions) / n
    return gradient


def slope(function, at, step=1e-5):
    steps = np.eye(at.size) * step
    return np.array([(function(at + one) - function(at - one)) / (2 * step) for one in steps])


@pytest.mark.parametrize("logits", [[0.0, 0.0, 0.0], [1.0, 0.2, -0.5], [-2.0, 0.3, 0.4]])
@pytest.mark.parametrize("kappa", [2, 3, 4])
def test_on_policy_the_penalty_is_reinforce_without_a_baseline_on_the_chance_of_low_consensus(logits, kappa):
    """-(delta u_x / n) grad P(M < kappa): enumeration against finite differences of the enumerated chance."""
    at, n, delta = np.array(logits), 4, 1.5
    found = expected_penalty_gradient(at, n, kappa=kappa, delta=delta)
    wanted = -(delta * 0.7 / n) * slope(lambda logits: chance_below_kappa(logits, n, kappa), at)
    assert found == pytest.approx(wanted, abs=1e-8)


@pytest.mark.parametrize(
    ("std", "net"), [("unbiased", (0, -0.0188, -0.0088, 0.0114)), ("population", (0, -0.0194, -0.0091, 0.0117))]
)
def test_soft_labels_are_against_consensus_where_it_is_very_low(std, net):
    scored = method(std=std, kappa=0, prompt_weight="none")
    found = [scored.score(majority_among_distinct(size)).pair.net[0] for size in (1, 2, 3, 4)]
    assert found == pytest.approx(net, abs=6e-5)


def mean_advantage(name, size):
    facts = PromptFacts(reference=ReferenceVote(size, N))
    return float(np.abs(method(name).score(majority_among_distinct(size), facts).pair.net).mean())


@pytest.mark.parametrize(("size", "ratio"), [(3, 0.001), (5, 0.010), (8, 0.076), (12, 0.322), (15, 0.698)])
def test_how_much_smaller_restrains_advantages_are_than_ttrls(size, ratio):
    assert mean_advantage("restrain", size) / mean_advantage("ttrl", size) == pytest.approx(ratio, abs=6e-4)
