"""Entropy-forked trees over a policy made up for the test, so that every fork can be worked out."""

import asyncio
import math
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.method.rollout_plans import Chain, EntropyTrees, Independent, token_entropy


@dataclass
class Policy:
    """Token t of the i-th sample is 100 · i + t, its log-probability −(100 · i + t), its entropy `entropies[t]`."""

    entropies: tuple[float, ...]
    asked: list[tuple[int, ...]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)

    async def __call__(self, response, place):
        self.places.append(place)
        sample = len(self.asked)
        self.asked.append(tuple(response))
        positions = range(len(response), len(self.entropies))
        return Chain(
            tokens=tuple(100 * sample + t for t in positions),
            finish_reason="stop",
            log_probs=tuple(-float(100 * sample + t) for t in positions),
            entropies=tuple(self.entropies[t] for t in positions),
        )


def chain_of(tokens, finish_reason, entropies):
    return Chain(tuple(tokens), finish_reason, tuple(-float(token) for token in tokens), tuple(entropies))


def trees(**changes):
    return EntropyTrees(**{"trees": 1, "forks": 2, "branches": 2, "top_k": 4, **changes})


def draw(plan, policy):
    return asyncio.run(plan.draw(policy))


def test_a_tree_forks_where_the_policy_is_least_sure():
    policy = Policy((0.1, 0.9, 0.2, 0.8, 0.3))
    leaves = draw(trees(), policy)
    assert [leaf.tokens for leaf in leaves] == [
        (0, 1, 2, 3, 4),
        (0, 101, 102, 103, 104),
        (0, 201, 202, 203, 204),
        (0, 1, 2, 303, 304),
        (0, 1, 2, 403, 404),
    ]
    assert policy.asked == [(), (0,), (0,), (0, 1, 2), (0, 1, 2)]


def test_a_leafs_entropy_is_that_of_all_its_tokens_the_shared_ones_too():
    leaves = draw(trees(), Policy((0.1, 0.9, 0.2, 0.8, 0.3)))
    assert [leaf.mean_entropy for leaf in leaves] == pytest.approx([0.46] * 5)
    assert all(len(leaf.entropies) == len(leaf.tokens) for leaf in leaves)


def test_a_branch_is_truncated_when_its_continuation_is():
    start = chain_of((1, 2), None, (0.1, 0.2))
    assert start.then(Chain((), "length", ())).is_truncated
    assert start.then(chain_of((3,), "stop", (0.3,))) == chain_of((1, 2, 3), "stop", (0.1, 0.2, 0.3))


@given(st.lists(st.floats(0, 5), min_size=1, max_size=30), st.integers(1, 6))
def test_fork_positions_are_as_many_as_asked_and_within_the_chain(entropies, forks):
    chain = chain_of(range(len(entropies)), "stop", entropies)
    positions = trees(forks=forks).fork_positions(chain)
    assert len(positions) == forks
    assert all(0 <= position < len(entropies) for position in positions)
    assert len(set(positions)) == min(forks, len(entropies))
    assert entropies[positions[0]] == max(entropies)


def test_the_entropy_of_a_token_worked_by_hand():
    assert token_entropy([math.log(0.5), math.log(0.5)]) == pytest.approx(math.log(2))
    assert token_entropy([0.0]) == 0
    assert token_entropy([0.0, -math.inf]) == 0
    assert math.isnan(token_entropy([0.0, math.nan]))
    # .5 and .25 are given, .25 is left and counts as one token.
    assert token_entropy([math.log(0.5), math.log(0.25)]) == pytest.approx(1.5 * math.log(2))


@given(st.lists(st.floats(0.001, 1), min_size=2, max_size=30))
def test_fewer_tokens_never_give_a_higher_entropy(weights):
    log_probs = sorted((math.log(w / sum(weights)) for w in weights), reverse=True)
    exact = token_entropy(log_probs)
    for k in range(1, len(log_probs)):
        assert token_entropy(log_probs[:k]) <= exact + 1e-9


@pytest.mark.parametrize("plan", [trees(trees=3), Independent(5, 2)])
def test_a_rollout_is_asked_for_by_its_place_whichever_is_complete_first(plan):
    class Marking(Policy):
        """Ends each rollout with minus its place; later ones are complete first."""

        async def __call__(self, response, place):
            for _ in range(plan.voters - place):
                await asyncio.sleep(0)
            chain = await super().__call__(response, place)
            return replace(chain, tokens=(*chain.tokens[:-1], -place))

    policy = Marking((0.1, 0.9, 0.2))
    leaves = draw(plan, policy)
    assert [-leaf.tokens[-1] for leaf in leaves] == list(range(plan.voters)) == sorted(policy.places)
    assert policy.places != sorted(policy.places)
