"""Agglomerative clusters of a few vectors by cosine similarity, the same for the same vectors in the same order."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Linkage = Literal["complete", "average"]
# Finer differences are a processor's rounding; without them, ties are ties everywhere.
DECIMALS = 6


def clusters(vectors: NDArray[np.float32], threshold: float, linkage: Linkage) -> list[int]:
    """The cluster of each of n unit vectors, of shape (n, dimension).

    The two clusters that are most similar are joined, the first such pair at a tie, as long as their similarity is the
    threshold or more: that of their least similar members (complete), or the mean over pairs of members (average).
    """
    exact = vectors.astype(np.float64)
    similarity = np.round(exact @ exact.T, DECIMALS)
    np.fill_diagonal(similarity, -np.inf)
    label, size = np.arange(len(vectors)), np.ones(len(vectors))
    while len(vectors) > 1:
        kept, gone = sorted(divmod(int(similarity.argmax()), len(vectors)))
        if similarity[kept, gone] < threshold:
            break
        similarity[kept] = _joined(similarity[kept], similarity[gone], size[kept], size[gone], linkage)
        similarity[:, kept] = similarity[kept]
        similarity[gone], similarity[:, gone], similarity[kept, kept] = -np.inf, -np.inf, -np.inf
        size[kept] += size[gone]
        label[label == gone] = kept
    return [int(each) for each in label]


def _joined(
    first: NDArray[np.float64], second: NDArray[np.float64], n: float, m: float, linkage: Linkage
) -> NDArray[np.float64]:
    """The similarity of every cluster to the two as one, from that to each; -inf stays for those that are gone."""
    if linkage == "complete":
        return np.minimum(first, second)
    return np.round((n * first + m * second) / (n + m), DECIMALS)
