"""GMAE₀ (https://arxiv.org/abs/2609.36750): TTRL's majority, averaged over the groups a rollout might have been in.

A context is a rollout and G − 1 others of the N that vote. P_i is the share of contexts whose majority is the rollout's
answer, and v_i is 1 with chance P_i, independently of each other. A_i = E[(v_i − mean) / (std + ε)] (eq. 8 and 10).
Here P_i counts all contexts, of which the paper draws some. Its last step brings the advantages of a batch back to
TTRL's scale (eq. 13: one factor, 1.15 to 1.35; its average is 35.6 without and 37.1 with it): left out, since a method
sees one group. Assumed: tied majorities share a context. With G = N and no tie this is TTRL.
"""

from collections import Counter
from functools import lru_cache
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
        counts = tuple(sorted(votes.counts))
        chances = np.array([chance(count, counts, votes.n, size) for count in votes.counts])
        rewards = by_label(votes, chances)
        return GroupScore(votes, chances, AdvantagePair.of(self.expected_advantages(rewards)), rewards)

    def expected_advantages(self, chances: Floats) -> Floats:
        """E[(v_i − mean) / (std + ε)], (n,), of independent v_i that are 1 with these chances (n,)."""
        means = np.arange(len(chances) + 1) / len(chances)
        std = deviation(means, len(chances), self.ddof)
        inverse = np.where(std > 0, 1 / (np.where(std > 0, std, 1.0) + self.eps), 0.0)
        expected = {}
        for p in set(chances.tolist()):
            # The chances of 0, 1, 2 and more ones among the other rollouts.
            ones = np.ones(1)
            for q in np.delete(chances, chances.tolist().index(p)):
                ones = np.convolve(ones, [1 - q, q])
            expected[p] = ones @ (p * (1 - means[1:]) * inverse[1:] - (1 - p) * means[:-1] * inverse[:-1])
        return np.array([expected[p] for p in chances.tolist()])


@lru_cache(maxsize=4096)
def chance(count: int, counts: tuple[int, ...], n: int, size: int) -> float:
    """P of a label with `count` of n votes, when the labels have these `counts`, in contexts of `size` rollouts."""
    others, missing, won = [*(Counter(counts) - Counter([count])).elements()], n - sum(counts), 0.0
    for own in range(1, min(count, size) + 1):
        # In how many ways others are chosen, by how many they are, and by how many labels tie at `own`.
        ways = Counter({(0, 0): 1})
        for label in others:
            grown: Counter[tuple[int, int]] = Counter()
            for (chosen, tied), many in ways.items():
                for more in range(min(label, own, size - own - chosen) + 1):
                    grown[chosen + more, tied + (more == own)] += many * comb(label, more)
            ways = grown
        for (chosen, tied), many in ways.items():
            contexts = comb(count - 1, own - 1) * many * comb(missing, size - own - chosen)
            won += contexts / comb(n - 1, size - 1) / (tied + 1)
    return won
