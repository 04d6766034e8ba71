"""The paper's pseudo-code written out: a loop over labels and a full matrix of rewards. Slow and plain on purpose."""

import numpy as np

from restrain_openrlhf.method.papers_loss import advantages_by_label, soft_weights

__all__ = ["advantages_by_label", "clipped_loss", "restrain_loss", "soft_weights"]


def clipped_loss(ratio, advantage, low=0.2, high=0.2, dual=None):
    """Per-token PPO loss (minimised), with dual clip for negative advantages if asked."""
    clipped = np.minimum(ratio * advantage, np.clip(ratio, 1 - low, 1 + high) * advantage)
    if dual is not None:
        clipped = np.where(advantage < 0, np.maximum(clipped, dual * advantage), clipped)
    return -clipped


def restrain_loss(classes, ratios, *, kappa, delta, sigma, k, prompt_weight, dual=None):
    """u_x sum_j w_j loss(ratio, A_j) per rollout (eq. 3, 4 and 6), shape (n,)."""
    n = len(classes)
    m = max((c for c in classes if c is not None), default=-1) + 1
    counts = [sum(c == j for c in classes) for j in range(m)]
    if max(counts, default=0) < kappa:
        return prompt_weight * clipped_loss(ratios, np.full(n, -delta), dual=dual)
    weights = soft_weights(counts, n, sigma, k)
    per_label = advantages_by_label(classes)
    total = np.zeros(n)
    for j in range(m):
        total += weights[j] * clipped_loss(ratios, per_label[:, j], dual=dual)
    return prompt_weight * total
