"""SRT: majority labels that the frozen model gave once, or online labels on easy prompts alone."""

import math
from collections.abc import Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from restrain_openrlhf.method.advantages import one_label
from restrain_openrlhf.method.settings import (
    BreaksTies,
    Number,
    PenalizesOnlyMissing,
    SeparatesVoters,
    TakesGold,
    register,
)
from restrain_openrlhf.method.types import Facts, GroupScore, PromptFacts, Selection, Votes


@register
class SrtOffline(TakesGold, PenalizesOnlyMissing):
    """The majority of the frozen model's rollouts is the pseudo-label for the whole run."""

    name: Literal["srt_offline"] = "srt_offline"

    @property
    def reads(self) -> Facts:
        return frozenset({"reference", "stored_class"})

    def score(self, votes: Votes, facts: PromptFacts) -> GroupScore:
        return self.of_labels(votes, one_label(votes, facts.stored_class))


@register
class SrtEasy(SeparatesVoters, BreaksTies, PenalizesOnlyMissing):
    """TTRL's labels, on the prompts with the highest majority shares of the frozen model."""

    name: Literal["srt_easy"] = "srt_easy"
    easy_share: Number = Field(default=1 / 3, gt=0, le=1)
    """Share of prompts to train on: those with the highest majority shares of the frozen model."""
    easy_cutoff: Number | None = Field(default=None, ge=0, le=1)
    """Instead of easy_share: the majority share that a prompt must have."""

    @property
    def selection(self) -> Selection:
        return self.easy

    def easy(self, shares: Sequence[float]) -> list[int]:
        """The positions, ascending, of the easy prompts by these majority shares; ties go to the earlier prompt."""
        if self.easy_cutoff is not None:
            return [position for position, share in enumerate(shares) if share >= self.easy_cutoff]
        # A third of 300 prompts must be 100, although 300 * (1/3) may come out slightly above.
        count = math.ceil(round(len(shares) * self.easy_share, 9))
        ranked = sorted(range(len(shares)), key=lambda position: (-shares[position], position))
        return sorted(ranked[:count])

    def score(self, votes: Votes, facts: PromptFacts) -> GroupScore:
        return self.of_labels(votes, self.majority(votes))

    @model_validator(mode="after")
    def _one_criterion(self) -> Self:
        if self.easy_cutoff is not None and "easy_share" in self.changed():
            raise ValueError("easy_share and easy_cutoff both say which prompts are easy. Leave one of them out")
        return self
