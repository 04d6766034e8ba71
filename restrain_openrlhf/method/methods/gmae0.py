"""GMAE₀ (https://arxiv.org/abs/2609.36750): TTRL's majority, averaged over the groups that a rollout might have been in.

A context is a rollout and G − 1 others of the N that vote. P_i is the share of contexts whose majority is the rollout's
answer, and v_i is 1 with chance P_i, independently of each other. A_i = E[(v_i − mean) / (std + ε)] (eq. 8 and 10).

Two things differ. The paper draws some contexts at random; here P_i counts all, exactly. Its last step multiplies the
advantages of a batch by one factor, at least 1, so that their scale is TTRL's again (1.15 to 1.35, eq. 13): left out,
since a method sees one group. Its ablation without that step: 35.6, with it 37.1.

Assumed: tied majorities share a context. With G = N and no tie, this is TTRL.
"""

from collections import Counter
from functools import lru_cache, reduce
from math import comb
from typing import Literal

import numpy as np
from pydantic import Field, StrictInt

from restrain_openrlhf.errors import GroupError
from restrain_openrlhf.method.advantages import by_label, deviation
from restrain_openrlhf.method.settings import PenalizesOnlyMissing, SeparatesVoters, register
from restrain_openrlhf.method.types import AdvantagePair, Floats, GroupScore, PromptFacts, Votes


@register
class Gmae0(SeparatesVoters, PenalizesOnlyMissing):
    """The majority's label, averaged over the groups that a rollout might have been in."""

    name: Literal["gmae0"] = "gmae0"
    context: StrictInt | None = Field(default=None, ge=1)
    """G, the rollouts of a context; null: half of those that vote, as in the paper (16 of 32)."""

    def score(self, votes: Votes, facts: PromptFacts) -> GroupScore:
        size = (votes.n + 1) // 2 if self.context is None else self.context
        if size > votes.n:
            raise GroupError(f"A context of {size} rollouts needs as many votes, but {votes.n} vote. Lower `context`.")
        chances = np.array([chance(count, votes, size) for count in votes.counts])
        rewards = by_label(votes, chances)
        return GroupScore(votes, chances, AdvantagePair.of(self.expected_advantages(rewards)), rewards)

    def expected_advantages(self, chances: Floats) -> Floats:
        """E[(v_i − mean) / (std + ε)], (n,), of independent v_i that are 1 with these chances (n,)."""
        n = len(chances)
        ones = np.arange(n + 1) / n
        scale = deviation(ones, n, self.ddof)
        inverse = np.where(scale > 0, 1 / (np.where(scale > 0, scale, 1.0) + self.eps), 0.0)
        of_one, of_zero = (1 - ones) * inverse, -ones * inverse
        found = {}
        for place, p in enumerate(chances.tolist()):
            if p not in found:
                others = reduce(np.convolve, [[1 - q, q] for q in np.delete(chances, place)], np.ones(1))
                found[p] = p * others @ of_one[1:] + (1 - p) * others @ of_zero[:-1]
        return np.array([found[p] for p in chances.tolist()])


def chance(count: int, votes: Votes, size: int) -> float:
    """The chance that a rollout's answer, which `count` of the voters gave, is the majority of its context."""
    others = list(votes.counts)
    others.remove(count)
    return _chance(count, tuple(sorted(others)), votes.n - sum(votes.counts), size)


@lru_cache(maxsize=4096)
def _chance(count: int, others: tuple[int, ...], missing: int, size: int) -> float:
    shares, room = 0.0, comb(count + sum(others) + missing - 1, size - 1)
    for own in range(1, min(count, size) + 1):
        # In how many ways others are chosen, by how many they are, and how many labels tie with the rollout's.
        ways = Counter({(0, 0): 1})
        for label in others:
            grown: Counter[tuple[int, int]] = Counter()
            for (chosen, tied), many in ways.items():
                for votes in range(min(label, own, size - own - chosen) + 1):
                    grown[chosen + votes, tied + (votes == own)] += many * comb(label, votes)
            ways = grown
        rest = ((many * comb(missing, size - own - chosen), tied) for (chosen, tied), many in ways.items())
        shares += sum(comb(count - 1, own - 1) * many / room / (tied + 1) for many, tied in rest)
    return shares
