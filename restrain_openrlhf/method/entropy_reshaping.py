"""ETTRL's entropy-based advantage reshaping (EAR): bold advantages are clipped, unsure rollouts count for less."""

from dataclasses import dataclass, replace

import numpy as np

from restrain_openrlhf.errors import GroupError
from restrain_openrlhf.method.types import GroupScore, PromptFacts


@dataclass(frozen=True)
class ClipAdvantages:
    """clip(A, −bound, bound)."""

    bound: float
    needs_reference: bool = False

    def __call__(self, score: GroupScore, facts: PromptFacts) -> GroupScore:
        return replace(score, pair=score.pair.clipped(self.bound))


@dataclass(frozen=True)
class ResidualEntropy:
    """A'_i = A_i (1 + (H̄ − H_i) / H̄), H_i the rollout's mean token entropy and H̄ the group's mean of it.

    A rollout more than twice as unsure as its group changes sign, as the formula says. Raises GroupError where the
    rollouts came without entropies.
    """

    needs_reference: bool = False

    def __call__(self, score: GroupScore, facts: PromptFacts) -> GroupScore:
        if facts.entropies is None or len(facts.entropies) != score.rewards.size:
            found = "none" if facts.entropies is None else len(facts.entropies)
            raise GroupError(
                f"Entropy-based reshaping needs the mean token entropy of each of {score.rewards.size} rollouts, and "
                f"found {found}. Draw the rollouts with this method, or give their `entropies`."
            )
        entropies = np.array(facts.entropies, dtype=np.float64)
        mean = entropies.mean()
        factors = 1 + (mean - entropies) / mean if mean > 0 else np.ones_like(entropies)
        return replace(score, pair=score.pair.times(factors))
