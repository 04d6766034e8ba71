"""RESTRAIN's loss as the paper writes it, label by label: slow and plain on purpose."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from restrain_openrlhf.gpu_check.papers_labels import Classes, Floats, advantages_by_label, soft_weights


@dataclass(frozen=True)
class Formula:
    """The loss of several groups of n rollouts; the other fields are what a wrong implementation would do instead."""

    groups: Sequence[Classes]
    prompt_weights: Sequence[float]
    beta: float
    clip: float
    token_mean: bool = True
    net_advantage: bool = False
    weighs_kl: bool = True

    def loss(self, log_probs: torch.Tensor, old: torch.Tensor, base: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Σ_x u_x (Σ_j w_j loss_j + β KL), a scalar; the arguments are (B, T), the mask 1 on response tokens.

        The host takes the mean of KL over tokens, whatever actor.loss_agg_mode says (trainer/ray/ppo_actor.py).
        """
        weights = torch.tensor(self.prompt_weights).repeat_interleave(len(self.groups[0])).to(log_probs)[:, None]
        per_token = weights * self._policy_loss((log_probs - old).exp())
        difference = base - log_probs
        kl = (weights if self.weighs_kl else 1) * self.beta * (difference.exp() - 1 - difference)
        tokens = mask.sum()
        if self.token_mean:
            policy_loss = (per_token * mask).sum() / tokens
        else:
            policy_loss = ((per_token * mask).sum(1) / mask.sum(1)).mean()
        return policy_loss + (kl * mask).sum() / tokens

    def _policy_loss(self, ratio: torch.Tensor) -> torch.Tensor:
        return torch.stack([self._of_rollout(ratio[i], *terms) for i, terms in enumerate(self._terms())])

    def _of_rollout(self, ratio: torch.Tensor, advantages: Floats, weights: Floats) -> torch.Tensor:
        if self.net_advantage:
            return self._clipped(ratio, float(advantages @ weights))
        per_label = zip(advantages, weights, strict=True)
        return torch.stack([float(w) * self._clipped(ratio, float(a)) for a, w in per_label]).sum(0)

    def _clipped(self, ratio: torch.Tensor, advantage: float) -> torch.Tensor:
        return -torch.minimum(ratio * advantage, ratio.clamp(1 - self.clip, 1 + self.clip) * advantage)

    def _terms(self) -> list[tuple[Floats, Floats]]:
        """Of each rollout, A_ij and w_j for every label j of its group."""
        terms = []
        for classes in self.groups:
            labels = range(max(c for c in classes if c is not None) + 1)
            weights = soft_weights([sum(c == j for c in classes) for j in labels], len(classes), sigma=0.5, k=1.0)
            terms += [(row, weights) for row in advantages_by_label(classes)]
        return terms
