"""How a prompt's rollouts are drawn: one by one, or as trees that fork where the token entropy is highest."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice


@dataclass(frozen=True)
class Chain:
    """T tokens of a response, and the policy's log-probability of each in nats.

    `entropies` are those of the policy's distribution at each token, in nats, and empty if they were not asked for.
    """

    tokens: tuple[int, ...]
    finish_reason: str | None
    log_probs: tuple[float, ...]
    entropies: tuple[float, ...] = ()

    @property
    def mean_entropy(self) -> float:
        """H_i, the mean entropy of the response's tokens in nats; 0 for an empty response."""
        return sum(self.entropies) / len(self.entropies) if self.entropies else 0.0

    @property
    def is_truncated(self) -> bool:
        return self.finish_reason == "length"

    def upto(self, length: int) -> "Chain":
        """The first `length` tokens, as an unfinished chain."""
        return Chain(self.tokens[:length], None, self.log_probs[:length], self.entropies[:length])

    def then(self, rest: "Chain") -> "Chain":
        """This chain continued by another."""
        return Chain(
            self.tokens + rest.tokens,
            rest.finish_reason,
            self.log_probs + rest.log_probs,
            self.entropies + rest.entropies,
        )


def token_entropy(log_probs: Sequence[float]) -> float:
    """H = −sum p log p in nats, computed from the log-probabilities of the k most likely tokens.

    All other tokens count as one token with the probability that is left. So H is never above the exact value, and
    equals it where k covers the vocabulary. It is NaN if a log-probability is.
    """
    probabilities = [math.exp(value) for value in log_probs]
    rest = max(0.0, 1.0 - sum(probabilities))
    return sum(-p * math.log(p) for p in (*probabilities, rest) if p != 0)


# Samples the response on from these tokens to its end. The second argument is the rollout's place among all that the
# plan draws for the prompt, which seeds it.
Continue = Callable[[Sequence[int], int], Awaitable[Chain]]


@dataclass(frozen=True)
class Independent:
    """`voters` independent rollouts, of which the first `trained` are trained on (TTRL: 64 vote, 32 are trained on)."""

    voters: int
    trained: int
    top_k: int | None = None

    async def draw(self, continue_from: Continue) -> list[Chain]:
        """All rollouts, drawn at the same time."""
        return list(await asyncio.gather(*[continue_from((), place) for place in range(self.voters)]))


@dataclass(frozen=True)
class EntropyTrees:
    """ETTRL's M trees (ETMR). Each is a full chain, N forks at its tokens of highest entropy, and B branches per fork.

    The token at a fork is sampled again from the same distribution, so a branch may begin with the chain's own token.
    """

    trees: int
    forks: int
    branches: int
    top_k: int

    @property
    def voters(self) -> int:
        """M (1 + B · N) rollouts: every leaf votes."""
        return self.trees * self._leaves

    @property
    def trained(self) -> int:
        """Every leaf is trained on."""
        return self.voters

    async def draw(self, continue_from: Continue) -> list[Chain]:
        """All leaves, tree by tree: the full chain first, then its branches, fork by fork."""
        trees = await asyncio.gather(*[self._tree(continue_from, tree * self._leaves) for tree in range(self.trees)])
        return [leaf for tree in trees for leaf in tree]

    @property
    def _leaves(self) -> int:
        """Leaves of one tree: the full chain, and the branches of every fork."""
        return 1 + self.branches * self.forks

    async def _tree(self, continue_from: Continue, place: int) -> list[Chain]:
        root = await continue_from((), place)
        starts = [start for position in self.fork_positions(root) for start in [root.upto(position)] * self.branches]
        branches = await asyncio.gather(
            *[continue_from(start.tokens, place + branch) for branch, start in enumerate(starts, 1)]
        )
        return [root, *(start.then(branch) for start, branch in zip(starts, branches, strict=True))]

    def fork_positions(self, chain: Chain) -> list[int]:
        """The N positions of highest entropy, highest first; ties go to the earlier one.

        A chain with fewer tokens is forked at the same positions again, so that a group always has M (1 + B · N)
        leaves.
        """
        ranked = sorted(range(len(chain.tokens)), key=lambda t: (-chain.entropies[t], t))
        return list(islice(cycle(ranked[: self.forks] or [0]), self.forks))


# How the rollouts of one prompt are drawn. The first `trained` of the `voters` are trained on. `top_k` is how many of
# the most likely tokens give a position's entropy; None where no entropies are needed.
RolloutPlan = Independent | EntropyTrees
