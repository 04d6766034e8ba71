"""Plans for drawing a prompt's rollouts: one by one, or as trees that fork where the token entropy is highest."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Literal, Protocol

from restrain_openrlhf.rollouts.chain import Alternative, Chain

ForkToken = Literal["resample", "distinct"]


class Continue(Protocol):
    """Samples a continuation of the prompt and these response tokens, to its end.

    `place` is the rollout's place among all that the plan draws for the prompt.
    """

    async def __call__(self, response: Sequence[int], place: int) -> Chain: ...


class RolloutPlan(Protocol):
    """How the rollouts of one prompt are drawn; the first `trained` of `voters` are trained on.

    `top_k` is how many of the most likely tokens it reads at each position; None: no probabilities.
    """

    @property
    def voters(self) -> int: ...

    @property
    def trained(self) -> int: ...

    @property
    def top_k(self) -> int | None: ...

    async def draw(self, continue_from: Continue) -> list[Chain]: ...


@dataclass(frozen=True)
class Independent:
    """`voters` samples of the prompt, all alike; the first `trained` are trained on (TTRL: 64 vote, 32 are)."""

    voters: int
    trained: int
    top_k: int | None = None

    async def draw(self, continue_from: Continue) -> list[Chain]:
        """All samples at once."""
        return list(await asyncio.gather(*[continue_from((), place) for place in range(self.voters)]))


@dataclass(frozen=True)
class EntropyTrees:
    """ETTRL's M trees (ETMR): a full chain each, N forks at its tokens of highest entropy, B branches per fork.

    `fork_token`: the token at a fork is sampled again, or forced to the most likely ones that the chain did not take.
    `spacing`: the least distance between two forks of a tree, in tokens.
    """

    trees: int
    forks: int
    branches: int
    top_k: int
    fork_token: ForkToken = "resample"
    spacing: int = 1

    @property
    def voters(self) -> int:
        """M (1 + B · N): every leaf votes."""
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
        """Of one tree."""
        return 1 + self.branches * self.forks

    async def _tree(self, continue_from: Continue, place: int) -> list[Chain]:
        root = await continue_from((), place)
        starts = [start for position in self.fork_positions(root) for start in [root.upto(position)] * self.branches]
        if self.fork_token == "distinct":
            starts = _with_distinct_tokens(root, starts)
        branches = await asyncio.gather(
            *[continue_from(start.tokens, place + branch) for branch, start in enumerate(starts, 1)]
        )
        return [root, *(start.then(branch) for start, branch in zip(starts, branches, strict=True))]

    def fork_positions(self, chain: Chain) -> list[int]:
        """The N positions of highest entropy, highest first, at least `spacing` apart; ties go to the earlier one.

        A chain with fewer such positions is forked there again, so that a group always has M (1 + B · N) leaves.
        """
        chosen: list[int] = []
        for position in sorted(range(len(chain.tokens)), key=lambda t: (-chain.entropies[t], t)):
            if len(chosen) < self.forks and all(abs(position - other) >= self.spacing for other in chosen):
                chosen.append(position)
        return list(islice(cycle(chosen or [0]), self.forks))


def _with_distinct_tokens(root: Chain, starts: Sequence[Chain]) -> list[Chain]:
    """Each start with its next token forced: the likeliest that neither the chain nor an earlier branch took there.

    Where none is left, the token is sampled.
    """
    taken: set[tuple[int, int]] = {(position, token) for position, token in enumerate(root.tokens)}
    forced = []
    for start in starts:
        position = len(start.tokens)
        candidates = root.alternatives[position] if position < len(root.tokens) else ()
        free = next((other for other in candidates if (position, other.token) not in taken), None)
        forced.append(start if free is None else _forced(root, start, free))
        taken |= {(position, free.token)} if free is not None else set()
    return forced


def _forced(root: Chain, start: Chain, chosen: Alternative) -> Chain:
    position = len(start.tokens)
    return replace(
        start,
        tokens=(*start.tokens, chosen.token),
        log_probs=(*start.log_probs, chosen.log_prob),
        entropies=root.entropies[: position + 1],
        alternatives=root.alternatives[: position + 1],
    )
