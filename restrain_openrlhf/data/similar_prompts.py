"""Finds prompts that share most of their words, with rensa's MinHash, and only reports them.

Nothing is removed, because two problems that only differ in a number are such a pair, too.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, compress

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.data.contamination import words
from restrain_openrlhf.errors import DataError

SHINGLE = 3
# A pair with share s is compared with probability 1 - (1 - s^(PERMUTATIONS / BANDS))^BANDS.
PERMUTATIONS, BANDS = 128, 32
# Factors that mix the two 64-bit numbers of a band into one. A collision only costs a comparison of texts.
MIXED = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], dtype=np.uint64)
# Shifts a 64-bit number to its upper half, which depends on all bits that were mixed, or is a pair's first place.
UPPER = np.uint64(32)


class Similar(BaseModel):
    """Two prompts. `share` is the Jaccard similarity of their sets of SHINGLE words in a row."""

    model_config = ConfigDict(frozen=True)

    share: float
    id: str
    other_id: str
    problem: str
    other: str


def similar(read: Callable[[], Iterable[tuple[str, str]]], least: float) -> list[Similar]:
    """Pairs of prompts with a share of at least `least`, highest first; `read` gives (id, text), and is called twice.

    MinHash finds candidates, 98 % of the pairs with a share of 0.6 and more of those with a higher share; then their
    texts are compared. Raises DataError if rensa is not installed.
    """
    bands = _bands(text for _, text in read())
    pairs = np.zeros(0, dtype=np.uint64)
    for band in range(BANDS):
        pairs = np.union1d(pairs, np.fromiter(_equal(bands[:, band]), dtype=np.uint64))
    one, other = (pairs >> UPPER).astype(np.uint32), pairs.astype(np.uint32)
    is_wanted = np.isin(np.arange(len(bands)), np.union1d(one, other))
    texts = dict(compress(enumerate(read()), is_wanted))
    found = (_compared(texts[int(first)], texts[int(second)]) for first, second in zip(one, other, strict=True))
    return sorted((pair for pair in found if pair.share >= least), key=lambda pair: -pair.share)


def _bands(texts: Iterable[str]) -> NDArray[np.uint32]:
    """A number for each band of each text, (texts, BANDS), in 128 bytes of memory per text."""
    try:
        from rensa import RMinHash  # noqa: PLC0415 - optional
    except ImportError:
        raise DataError(
            "Finding similar prompts needs rensa, which is not installed. Install it with `pip install "
            "restrain-openrlhf[similar]`."
        ) from None
    rows = bytearray()
    for text in texts:
        sketch = RMinHash(num_perm=PERMUTATIONS, seed=0)
        sketch.update(sorted(_shingles(text)))
        numbers = np.array(sketch.digest(), dtype=np.uint32).view(np.uint64).reshape(BANDS, -1)
        rows += ((numbers * MIXED).sum(axis=1, dtype=np.uint64) >> UPPER).astype(np.uint32).tobytes()
    return np.frombuffer(rows, dtype=np.uint32).reshape(-1, BANDS)


def _equal(numbers: NDArray[np.uint32]) -> Iterator[int]:
    """The places of each pair of equal numbers, as one number with the earlier place in its upper half."""
    order = np.argsort(numbers, kind="stable")
    same = np.flatnonzero(numbers[order[1:]] == numbers[order[:-1]])
    for run in np.split(same, np.flatnonzero(np.diff(same) > 1) + 1) if len(same) else ():
        for one, other in combinations(order[run[0] : run[-1] + 2].tolist(), 2):
            yield one << 32 | other


def _compared(one: tuple[str, str], other: tuple[str, str]) -> Similar:
    first, second = _shingles(one[1]), _shingles(other[1])
    share = len(first & second) / len(first | second)
    return Similar(share=share, id=one[0], other_id=other[0], problem=one[1], other=other[1])


def _shingles(text: str) -> frozenset[str]:
    """The sets of SHINGLE words in a row; for a shorter text, the whole text."""
    found = words(text) or [text]
    return frozenset(" ".join(found[start : start + SHINGLE]) for start in range(max(1, len(found) - SHINGLE + 1)))
