"""Prompt weightings: u_x, the weight of one prompt in the loss (eq. 5), and the step that multiplies by it (eq. 6).

A new weighting is one class in this file and one line in the method that offers it.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace

from restrain_openrlhf.errors import ReferencePassError
from restrain_openrlhf.method.label_weightings import Shaping
from restrain_openrlhf.method.transforms import Transform
from restrain_openrlhf.method.types import NOTHING, Fact, GroupScore, Part, PromptFacts, Votes


class PromptWeighting(Part):
    """From a group's votes and the prompt's facts to u_x, a finite number of 0 or more."""

    @abstractmethod
    def __call__(self, votes: Votes, facts: PromptFacts) -> float: ...


@dataclass(frozen=True)
class Offline(PromptWeighting):
    """u_x = g(c_ref / n_ref) of the frozen model's vote. Raises ReferencePassError where the prompt has none."""

    shaping: Shaping
    reads = frozenset({Fact.REFERENCE})

    def __call__(self, votes: Votes, facts: PromptFacts) -> float:
        if facts.reference is None:
            raise ReferencePassError(
                "The prompt weight u_x needs the frozen model's vote, and this prompt has none. Make a reference with "
                "`restrain reference`, or set prompt_weight to none, online or a number."
            )
        return self.shaping(facts.reference.share)


@dataclass(frozen=True)
class Online(PromptWeighting):
    """u_x = g(M / n) of the group itself: the ablation that follows the policy instead of the frozen model."""

    shaping: Shaping
    reads = NOTHING

    def __call__(self, votes: Votes, facts: PromptFacts) -> float:
        return self.shaping(votes.majority_count / votes.n)


@dataclass(frozen=True)
class Constant(PromptWeighting):
    """The same u_x for every prompt."""

    weight: float
    reads = NOTHING

    def __call__(self, votes: Votes, facts: PromptFacts) -> float:
        return self.weight


@dataclass(frozen=True)
class ScaleByPromptWeight(Transform):
    """Multiply the pair by u_x (eq. 6), and the prompt's KL term too unless `scale_kl` is off."""

    weighting: PromptWeighting
    scale_kl: bool = True

    @property
    def reads(self) -> frozenset[Fact]:
        """What the weighting reads."""
        return self.weighting.reads

    def __call__(self, score: GroupScore, facts: PromptFacts) -> GroupScore:
        weight = self.weighting(score.votes, facts)
        return replace(
            score,
            pair=score.pair.times(weight),
            prompt_weight=weight,
            kl_weight=weight if self.scale_kl else 1.0,
        )
