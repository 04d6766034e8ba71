"""TTRL-Guard (https://arxiv.org/abs/2605.19444): TTRL, held back where a prompt's majority flips or is suspect.

F is 1 if the majority differs from that of the prompt's step before, else 0. MR is its share of the votes, and the mean
MR is that of the prompt's last W steps. With y the answer of rollout i, and the advantages A_i of TTRL,

    A'_i = w s (A_i + β_max F b_y mean|A|).

FRS: w = (1 − λ1 F) (1 − λ2 [F = 1, MR > τ_MR]) (1 − λ2 / 2 [locked]), at least .1. A prompt is locked at its step W or
later if it has never flipped and its mean MR is above τ_MR, but only the first W times.
RCSU: s = 1 − p_skip for a prompt that has had W steps, has flipped at least once and has a mean MR above θ_MR; else 1.
MPS: b_y is y's share of the votes for minorities, which are other answers with at least n // min_votes_denom of the n
votes, and with at least one.

The formulas are those of the authors' program, which is more detailed than their paper, with these differences. Their
program skips the update of a prompt at high risk with probability p_skip, for a quarter of a batch at most. A method
here sees one group, so s is the expected value without that limit; the KL term is left alone, as there. Their small
bonus for responses without an answer is left out. Their threshold τ_FR, and the steps for which MPS stays active after
a flip, are no settings: F is 0 or 1 and a factor of the bonus, so they change nothing. Their program never passes the
votes to MPS, so the bonus is never given there; here it is.

A step in which no rollout has an answer counts, with MR 0 and a majority that no answer equals. Assumed: the first of
tied labels is the majority, and of a prompt that a step has twice, the vote is that of the first group.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Literal

import numpy as np
from pydantic import Field, StrictInt

from restrain_openrlhf.method.advantages import by_label, majority
from restrain_openrlhf.method.settings import Amount, Number, PenalizesOnlyMissing, SeparatesVoters, register
from restrain_openrlhf.method.types import AdvantagePair, Facts, Floats, GroupScore, PromptFacts, Votes


@register
class TtrlGuard(SeparatesVoters, PenalizesOnlyMissing):
    """TTRL's majority, less where it has just flipped or is suspect; after a flip, common minorities have a bonus."""

    name: Literal["ttrl_guard"] = "ttrl_guard"
    lambda1: Number = Field(0.5, ge=0, le=1)
    """FRS: what a prompt's weight loses if its majority has just flipped. With both lambdas 0 there is no FRS."""
    lambda2: Number = Field(0.3, ge=0, le=1)
    """FRS: what the weight also loses if the new majority's share is above tau_mr. A locked prompt loses half of it."""
    tau_mr: Number = Field(0.6, ge=0, le=1)
    """FRS: the share of a majority above which it is suspect."""
    beta_max: Amount = 0.3
    """MPS: the bonus of minorities after a flip, in units of the group's mean absolute advantage; 0: no MPS."""
    min_votes_denom: StrictInt = Field(4, ge=1)
    """MPS: a minority needs one vote of so many."""
    window: StrictInt = Field(5, ge=1)
    """W, the steps over which the share of a prompt's majority is averaged."""
    theta_mr: Number = Field(0.7, ge=0, le=1)
    """RCSU: the mean share above which a prompt that has ever flipped is at high risk."""
    p_skip: Number = Field(0.7, ge=0, le=1)
    """RCSU: what the advantages of a prompt at high risk lose; 0: no RCSU."""

    @property
    def reads(self) -> Facts:
        return frozenset({"history"})

    def score(self, votes: Votes, facts: PromptFacts) -> GroupScore:
        past, plain = facts.history.votes, self.of_labels(votes, majority(votes))
        flips = [*(vote.flipped for vote in past), facts.history.is_flipped_by(votes)]
        weight = self.weight(flips, [*(vote.share for vote in past), votes.majority_count / votes.n])
        bonus = self.beta_max * flips[-1] * by_label(votes, self.minorities(votes)) * np.abs(plain.pair.net).mean()
        return replace(plain, pair=AdvantagePair.of(plain.pair.net + bonus).times(weight), prompt_weight=weight)

    def weight(self, flips: Sequence[bool], shares: Sequence[float]) -> float:
        """w s, by F and MR at all steps of the prompt, of which this group's is the last."""
        means = [fmean(shares[end - self.window : end]) for end in range(self.window, len(shares) + 1)]
        # Before step W there is no mean, and 0 is above no threshold.
        mean, times = [0.0, *means][-1], sum(each > self.tau_mr for each in means)
        is_locked = not any(flips) and mean > self.tau_mr and times <= self.window
        is_contradictory = flips[-1] and shares[-1] > self.tau_mr
        w = (1 - self.lambda1 * flips[-1]) * (1 - self.lambda2 * is_contradictory) * (1 - self.lambda2 / 2 * is_locked)
        return max(0.1, w) * (1 - self.p_skip * (any(flips) and mean > self.theta_mr))

    def minorities(self, votes: Votes) -> Floats:
        """b_y of each label, (m,); 0 for the majority and for rare labels."""
        counts = np.array(votes.counts, dtype=np.float64) * (majority(votes) == 0)
        common = np.where(counts >= max(1, votes.n // self.min_votes_denom), counts, 0.0)
        shares: Floats = common / max(common.sum(), 1.0)
        return shares
