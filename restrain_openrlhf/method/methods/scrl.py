"""SCRL (https://arxiv.org/abs/2603.19880): the majority only where consensus is strong, and rare answers as negatives.

p_j = c_j / n; p_1 and p_2 are the largest two. The majority is positive if p_1 ≥ τ_pos and p_1 − p_2 > τ_marg. Another
label is negative if p_j < τ_neg and H_j ≥ H̄: its rollouts' mean token entropy is not below the group's. The reward is

    r_j = p_j [positive] + (p_j − τ_neg) [negative] − λ_H (H_j − H̄),        A_i = (r_i − mean) / (std + ε).

Taken from the authors' program, where their text leaves a choice: rewards are standardised as in GRPO, and a missing
answer has reward −1. With 0 it would be the best of a group whose labels are all rare. H is that of the trained
rollouts, since only these have entropies here. By default no entropies are drawn: H_j = H̄, and all rare labels are
negative.
"""

from dataclasses import replace
from typing import Literal, Self

import numpy as np
from pydantic import Field, StrictInt, model_validator

from restrain_openrlhf.method.advantages import by_label, one_label
from restrain_openrlhf.method.rollout_plans import Independent, RolloutPlan
from restrain_openrlhf.method.settings import Amount, Number, PenalizesOnlyMissing, SeparatesVoters, register
from restrain_openrlhf.method.types import Facts, Floats, GroupScore, PromptFacts, Votes


@register
class Scrl(SeparatesVoters, PenalizesOnlyMissing):
    """The majority's share is its reward where consensus is strong; rare answers have a negative reward."""

    name: Literal["scrl"] = "scrl"
    positive_share: Number = Field(0.375, ge=0, le=1)
    """The least share of a majority that is believed."""
    positive_margin: Number = Field(0.125, ge=0, le=1)
    """The majority must lead the second label by more than this share."""
    negative_share: Number = Field(0.125, ge=0, le=1)
    """Labels with a smaller share are negative."""
    entropy_top_k: StrictInt | None = Field(None, ge=2, le=20)
    """Draw entropies, from so many most likely tokens, and spare sure rare labels; null: no entropies. Needs votes."""
    entropy_penalty: Amount = 0.1
    """The weight of a label's entropy above the group's, with entropy_top_k."""

    @property
    def plan(self) -> RolloutPlan | None:
        return None if self.votes is None else Independent(self.votes, self.train_on or self.votes, self.entropy_top_k)

    @property
    def reads(self) -> Facts:
        return frozenset(() if self.entropy_top_k is None else {"entropies"})

    def score(self, votes: Votes, facts: PromptFacts) -> GroupScore:
        excess, shares = self.excess_entropies(votes, facts), votes.shares
        positive = one_label(votes, votes.majority if self.is_strong(votes) else None)
        negative = (positive == 0) & (shares < self.negative_share) & (excess >= 0)
        rewards = shares * positive + (shares - self.negative_share) * negative - self.entropy_penalty * excess
        missing = by_label(votes, np.zeros_like(rewards), missing=-1.0)
        return replace(self.of_rewards(votes, rewards, missing), penalized=float(by_label(votes, negative).mean()))

    def is_strong(self, votes: Votes) -> bool:
        """p_1 ≥ τ_pos and p_1 − p_2 > τ_marg."""
        second, first = sorted([0, 0, *votes.counts])[-2:]
        leads = (first - second) / votes.n > self.positive_margin
        return leads and first / votes.n >= self.positive_share

    def excess_entropies(self, votes: Votes, facts: PromptFacts) -> Floats:
        """H_j − H̄ of each label, (m,); 0 for a label that no trained rollout has, and where no entropies are drawn."""
        excess = np.zeros(len(votes.counts))
        if self.entropy_top_k is not None:
            entropies, labels = facts.entropies_of(votes), np.array(votes.trained.classes, dtype=float)
            for label in set(labels[~np.isnan(labels)].astype(int)):
                excess[label] = entropies[labels == label].mean() - entropies.mean()
        return excess

    @model_validator(mode="after")
    def _entropies_are_drawn(self) -> Self:
        if self.entropy_top_k is not None and self.votes is None:
            raise ValueError("entropy_top_k: entropies are drawn with a stated number of rollouts. Set votes too")
        if self.entropy_top_k is None and "entropy_penalty" in self.changed():
            raise ValueError("entropy_penalty has no effect without entropy_top_k. Set that too, or leave it out")
        return self
