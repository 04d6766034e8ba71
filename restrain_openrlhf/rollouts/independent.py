"""Rollouts drawn one by one, more of them for the vote than for training if asked (TTRL's 64 votes, 32 trained on)."""

import asyncio
from dataclasses import dataclass

from restrain_openrlhf.rollouts.chain import Chain, Continue


@dataclass(frozen=True)
class Independent:
    """`voters` samples of the prompt, in no order of merit: the first `trained` are as good as any."""

    voters: int
    trained: int
    top_k: int | None = None

    async def draw(self, continue_from: Continue) -> list[Chain]:
        """All samples at once."""
        return list(await asyncio.gather(*[continue_from((), place) for place in range(self.voters)]))
