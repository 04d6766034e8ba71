"""The shaping function g: how far a label is believed, by the share of rollouts that gave it."""

import math
from dataclasses import dataclass

import numpy as np

from restrain_openrlhf.method.types import Floats


@dataclass(frozen=True)
class Shaping:
    """g(f) = exp(−(f − k)² / (2 σ²)); σ = 0 and σ = ∞ are the exact limits."""

    k: float = 1.0
    sigma: float = 0.5

    def __call__(self, share: float) -> float:
        """g(f) of one share, in [0, 1]; at σ = 0 it is 1 for f = k and 0 elsewhere."""
        distance = (share - self.k) ** 2
        if self.sigma == 0:
            return float(distance == 0)
        return math.exp(-(distance / self.sigma) / self.sigma / 2)

    def normalized(self, shares: Floats) -> Floats:
        """g(f_j) / sum_l g(f_l), shape (m,). In logarithms: a small σ must not divide 0 by 0.

        As σ → 0 the label nearest to k takes all (several equally near share), as σ → ∞ all are alike.
        """
        if shares.size == 0:
            return np.zeros(0)
        distance = (shares - self.k) ** 2
        excess = distance - distance.min()
        if self.sigma == 0:
            weights = (excess == 0).astype(np.float64)
        else:
            # A tiny sigma squared would underflow to 0, so divide twice; what then overflows has weight 0.
            with np.errstate(over="ignore"):
                weights = np.exp(-(excess / self.sigma) / self.sigma / 2)
        normalized: Floats = weights / weights.sum()
        return normalized
