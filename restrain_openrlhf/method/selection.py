"""Which prompts are trained on, by the frozen model's majority share (SRT's easy set)."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from restrain_openrlhf.method.types import Fact, Part


class Selection(Part):
    """From the frozen model's majority share of every prompt to the positions of those that are kept, in order."""

    reads = frozenset({Fact.REFERENCE})

    @abstractmethod
    def __call__(self, shares: Sequence[float]) -> list[int]: ...


@dataclass(frozen=True)
class Easiest(Selection):
    """The `share` of prompts with the highest majority share, rounded up; ties go to the earlier prompt."""

    share: float

    def __call__(self, shares: Sequence[float]) -> list[int]:
        # 1/3 of 300 must be 100 although 300 * (1/3) may come out slightly above.
        count = math.ceil(round(len(shares) * self.share, 9))
        ranked = sorted(range(len(shares)), key=lambda position: (-shares[position], position))
        return sorted(ranked[:count])


@dataclass(frozen=True)
class AtLeast(Selection):
    """Prompts whose majority share is `cutoff` or more."""

    cutoff: float

    def __call__(self, shares: Sequence[float]) -> list[int]:
        return [position for position, share in enumerate(shares) if share >= self.cutoff]
