"""RESTRAIN's whole loss as the paper writes it, label by label: slow and plain, the oracle of checks and tests.

It shares no code with the method's closed form. Tensors are torch's; nothing here imports it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# A tensor of torch.
Tensor = Any


def soft_weights(counts: Sequence[int], n: int, sigma: float, k: float) -> NDArray[np.float64]:
    """w_j = g(c_j / n) / Σ g, (m,) (eq. 3)."""
    g = np.array([np.exp(-((c / n - k) ** 2) / (2 * sigma**2)) for c in counts])
    weights: NDArray[np.float64] = g / g.sum()
    return weights


def advantages_by_label(classes: Sequence[int | None], eps: float = 1e-6, ddof: int = 1) -> NDArray[np.float64]:
    """A_ij, (n, m): the standardised reward of rollout i where label j is believed (eq. 2)."""
    m = max((c for c in classes if c is not None), default=-1) + 1
    columns = []
    for j in range(m):
        r = np.array([1.0 if c == j else 0.0 for c in classes])
        std = r.std(ddof=ddof)
        columns.append(np.zeros(len(r)) if std == 0 else (r - r.mean()) / (std + eps))
    return np.stack(columns, axis=1) if columns else np.zeros((len(classes), 0))


@dataclass(frozen=True)
class PapersLoss:
    """The loss of several groups of n rollouts, each group with its u_x.

    Two switches make it wrong on purpose, for checks that must notice: `net_advantage` sums the labels before the clip,
    and without `weighs_kl` the KL term lacks u_x.
    """

    groups: Sequence[Sequence[int | None]]
    prompt_weights: Sequence[float]
    beta: float
    clip: float
    kappa: int = 0
    delta: float = 1.0
    sigma: float = 0.5
    k: float = 1.0
    token_mean: bool = True
    net_advantage: bool = False
    weighs_kl: bool = True

    def loss(self, log_probs: Tensor, old: Tensor, base: Tensor, mask: Tensor) -> Tensor:
        """Σ_x u_x (Σ_j w_j loss_j + β KL), a scalar; the arguments are (B, T), the mask 1 on response tokens.

        The host takes the mean of KL over tokens, whatever actor.loss_agg_mode says (trainer/ray/ppo_actor.py).
        """
        loss, tokens, rollouts = 0.0, mask.sum(), len(mask)
        for i, (u_x, labels) in enumerate(self._terms()):
            of_rollout = tokens if self.token_mean else mask[i].sum() * rollouts
            ratio = (log_probs[i] - old[i]).exp()
            policy_loss = sum(w * self._clipped(ratio, advantage) for w, advantage in labels)
            loss = loss + u_x * (policy_loss * mask[i]).sum() / of_rollout
            difference = base[i] - log_probs[i]
            kl = ((difference.exp() - 1 - difference) * mask[i]).sum() / tokens
            loss = loss + (u_x if self.weighs_kl else 1) * self.beta * kl
        return loss

    def _clipped(self, ratio: Tensor, advantage: float) -> Tensor:
        return -(ratio * advantage).minimum(ratio.clamp(1 - self.clip, 1 + self.clip) * advantage)

    def _terms(self) -> list[tuple[float, list[tuple[float, float]]]]:
        """For each rollout: u_x, and a pair (w_j, A_ij) for every label j of its group. A is −δ where M < κ (eq. 4)."""
        terms: list[tuple[float, list[tuple[float, float]]]] = []
        for classes, u_x in zip(self.groups, self.prompt_weights, strict=True):
            advantages = advantages_by_label(classes)
            counts = [sum(c == j for c in classes) for j in range(advantages.shape[1])]
            weights = soft_weights(counts, len(classes), self.sigma, self.k)
            for row in advantages:
                labels = list(zip(weights.tolist(), row.tolist(), strict=True))
                if self.net_advantage:
                    labels = [(1.0, float(row @ weights))]
                terms.append((u_x, [(1.0, -self.delta)] if max(counts, default=0) < self.kappa else labels))
        return terms
