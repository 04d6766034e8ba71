"""Prompts that share most of their words, found by rensa's MinHash, and only reported.

Two problems that differ in a number are such a pair, and still two problems.
"""

from collections.abc import Callable, Iterable

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.data.contamination import words
from restrain_openrlhf.errors import DataError

SHINGLE = 3
# A pair of share s is compared with the chance 1 - (1 - s^(PERMUTATIONS / BANDS))^BANDS.
PERMUTATIONS, BANDS = 128, 32


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
    try:
        from rensa import RMinHash, RMinHashLSH  # noqa: PLC0415 - optional
    except ImportError:
        raise DataError(
            "Finding similar prompts needs rensa, which is not installed. Install it with `pip install "
            "restrain-openrlhf[similar]`."
        ) from None
    index = RMinHashLSH(threshold=least, num_perm=PERMUTATIONS, num_bands=BANDS)
    pairs: list[tuple[int, int]] = []
    for place, (_, text) in enumerate(read()):
        sketch = RMinHash(num_perm=PERMUTATIONS, seed=0)
        sketch.update(sorted(_shingles(text)))
        pairs += ((other, place) for other in index.query(sketch))
        index.insert(place, sketch)
    wanted = {place for pair in pairs for place in pair}
    texts = {place: prompt for place, prompt in enumerate(read()) if place in wanted}
    found = (_compared(texts[one], texts[other]) for one, other in sorted(pairs))
    return sorted((pair for pair in found if pair.share >= least), key=lambda pair: -pair.share)


def _compared(one: tuple[str, str], other: tuple[str, str]) -> Similar:
    first, second = _shingles(one[1]), _shingles(other[1])
    share = len(first & second) / len(first | second)
    return Similar(share=share, id=one[0], other_id=other[0], problem=one[1], other=other[1])


def _shingles(text: str) -> frozenset[str]:
    """Runs of SHINGLE words, as `words` has them; of a shorter text the whole."""
    found = words(text) or [text]
    return frozenset(" ".join(found[start : start + SHINGLE]) for start in range(max(1, len(found) - SHINGLE + 1)))
