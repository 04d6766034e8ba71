"""Prompts that are nearly the same: up to case, punctuation and white space, which may be dropped; or in most words.

Those that share most of their words are found by rensa's MinHash, and only reported: two problems that differ in a
number do.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.errors import DataError

SHINGLE = 3
# A pair of share s is compared with the chance 1 - (1 - s^(PERMUTATIONS / BANDS))^BANDS.
PERMUTATIONS, BANDS = 128, 32
# One way of writing for characters that look alike and mean the same.
_ALIKE = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201b\u2032\u02bc", "'"),
        **dict.fromkeys("\u201c\u201d\u201f\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        "\u2026": "...",
    }
)
# Not shown, or shown as space: LaTeX's dollars, display brackets, spacing and sizing; zero-width characters.
_UNSEEN = re.compile(
    r"(?P<keep>\\\\)|\\?\$|\\[()\[\],;:! ]|\\(?:left|right|quad|qquad|displaystyle)(?![a-zA-Z])"
    r"|[~\u200b-\u200f\u2060\ufeff\u00ad]"
)
_MARK = r"[.,;:?]"
_TOKEN = re.compile(
    rf"(?<=\d)\s*(?P<inside>{_MARK}(?:\s*{_MARK})*)\s*(?=\d)"  # between digits
    r"|(?P<dots>\.\s?\.[\s.]*)"  # and so on
    r"|(?P<point>\.(?=\d))"  # .5
    r"|(?P<inch>(?<=\d)\")"
    rf"|(?P<punctuation>{_MARK}|[\"`])"
    r"|(?P<word>\\?[^\W\d_]+|\d+|\\.|\S)"
)


class NearDuplicates(BaseModel):
    """What is said of a set's near-duplicates. `conflicting` counts groups with different answers, None without any.

    `dropped` counts prompts.
    """

    model_config = ConfigDict(frozen=True)

    groups: int
    prompts: int
    conflicting: int | None
    dropped: int = 0


def near_duplicates(
    groups: Sequence[Sequence[int]], answers: Mapping[int, str | None], has_gold: bool
) -> tuple[NearDuplicates, frozenset[int]]:
    """What is said of groups of problems with one normal form, and the places that go.

    A group conflicts where two of its answers differ as text, white space around them aside. `answers` has one for
    each place, None where there is none; a missing answer conflicts with nothing. All but the first of a group go,
    and all of a group that conflicts.
    """
    given = [{answer.strip() for place in group if (answer := answers[place]) is not None} for group in groups]
    conflicts = [len(found) > 1 for found in given]
    numbers = NearDuplicates(
        groups=len(groups), prompts=sum(map(len, groups)), conflicting=sum(conflicts) if has_gold else None
    )
    going = (group[not conflict :] for group, conflict in zip(groups, conflicts, strict=True))
    return numbers, frozenset(place for places in going for place in places)


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
    """Runs of SHINGLE words of the normal form; of a shorter text the whole."""
    words = (normal_form(text) or text).split()
    return frozenset(" ".join(words[start : start + SHINGLE]) for start in range(max(1, len(words) - SHINGLE + 1)))


def normal_form(text: str) -> str:
    """The words, numbers and signs of a text, in lower case, with one space between any two.

    "Find $x-1$." and "find  x - 1" have one normal form; "x-1" and "x+1", "2^3" and "23", "1.5" and "15" have two.
    """
    plain = unicodedata.normalize("NFC", text).translate(_ALIKE)
    seen = _UNSEEN.sub(lambda found: found["keep"] or " ", plain)
    return " ".join(_tokens(seen.casefold()))


def _tokens(text: str) -> list[str]:
    found = []
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "dots":
            found.append("...")
        elif match.lastgroup != "punctuation":
            found.append("".join(match[0].split()))
    return found
