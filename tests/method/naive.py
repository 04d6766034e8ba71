"""The paper's pseudo-code written out: a loop over labels and a full matrix of rewards. Slow and plain on purpose."""

import numpy as np


def soft_weights(counts, n, sigma, k):
    g = [np.exp(-((c / n - k) ** 2) / (2 * sigma**2)) for c in counts]
    return np.array(g) / sum(g)


def advantages_by_label(classes, eps=1e-6, ddof=1):
    """A_ij, shape (n, m)."""
    m = max((c for c in classes if c is not None), default=-1) + 1
    columns = []
    for j in range(m):
        r = np.array([1.0 if c == j else 0.0 for c in classes])
        std = r.std(ddof=ddof)
        columns.append(np.zeros(len(r)) if std == 0 else (r - r.mean()) / (std + eps))
    return np.stack(columns, axis=1) if columns else np.zeros((len(classes), 0))


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
