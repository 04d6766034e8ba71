"""Prompts that share most of their words, found by rensa's MinHash, and only reported.

Two problems that differ in a number are such a pair, and still two problems.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, compress

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.data.contamination import words
from restrain_openrlhf.errors import DataError

SHINGLE = 3
# A pair of share s is compared with the chance 1 - (1 - s^(PERMUTATIONS / BANDS))^BANDS.
PERMUTATIONS, BANDS = 128, 32
# A band's two numbers of 64 bits become one. Bands that are taken for equal cost a comparison of texts, no more.
MIXED = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], dtype=np.uint64)
# Of a number of 64 bits, the half that all of its factors' bits reach; also a pair's first place.
UPPER = np.uint64(32)


class Similar(BaseModel):
    """Two prompts; `share` is that of their runs of SHINGLE words which both have, of all that either has (Jaccard)."""

    model_config = ConfigDict(frozen=True)

    share: float
    id: str
    other_id: str
    problem: str
    other: str


def similar(read: Callable[[], Iterable[tuple[str, str]]], least: float) -> list[Similar]:
    """Pairs of prompts with a share of `least` or more, those that share most first; `read` gives (id, text), twice.

    MinHash finds what may be such a pair, 98 % of those with a share of 0.6 and more of those with more; then the texts
    are compared. Raises DataError where rensa is not installed.
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
    """A row for each text and a number for each of its bands: 128 bytes of memory a text."""
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
    """The places of each two equal numbers as one number, the earlier place in its upper half."""
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
    """Runs of SHINGLE words, as `words` has them; of a shorter text the whole."""
    found = words(text) or [text]
    return frozenset(" ".join(found[start : start + SHINGLE]) for start in range(max(1, len(found) - SHINGLE + 1)))
