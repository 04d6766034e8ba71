"""Label weights and the matrix of advantages as the paper writes them: loops over labels, without the closed form."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Classes = Sequence[int | None]


def soft_weights(counts: Sequence[int], n: int, sigma: float, k: float) -> Floats:
    """w_j = g(c_j / n) / Σ g, (m,) (eq. 3)."""
    g = [np.exp(-((c / n - k) ** 2) / (2 * sigma**2)) for c in counts]
    weights: Floats = np.array(g) / sum(g)
    return weights


def advantages_by_label(classes: Classes, eps: float = 1e-6, ddof: int = 1) -> Floats:
    """A_ij, (n, m): the standardised reward of rollout i where label j is believed."""
    m = max((c for c in classes if c is not None), default=-1) + 1
    columns = []
    for j in range(m):
        r = np.array([1.0 if c == j else 0.0 for c in classes])
        std = r.std(ddof=ddof)
        columns.append(np.zeros(len(r)) if std == 0 else (r - r.mean()) / (std + eps))
    return np.stack(columns, axis=1) if columns else np.zeros((len(classes), 0))
