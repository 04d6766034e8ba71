"""Groups of prompts that differ in case, punctuation and white space alone: counted always, dropped where asked for."""

import re
import unicodedata
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

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
