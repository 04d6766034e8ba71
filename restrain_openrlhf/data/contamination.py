"""Finds training prompts that overlap with benchmark problems: shared runs of n words, or a whole short problem."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.errors import DataError

NGRAM = 13
_WORD = re.compile(r"\\?[^\W\d_]+|\d+|[^\s\w$,.;:!?'\"()\[\]{}]")


class Band(StrEnum):
    """How much of a problem one training prompt has. A band has its lower end; the upper end belongs to the next.

    Only `MOST` has 1 too: a problem that stands whole in a longer prompt.
    """

    EQUAL = "equal"
    MOST = "0.5-1"
    SOME = "0.3-0.5"
    LITTLE = "0-0.3"


_LOWEST = {Band.MOST: 0.5, Band.SOME: 0.3, Band.LITTLE: 0.0}


class Overlap(BaseModel):
    """One benchmark problem and the training prompt that shares most with it, with the texts of both.

    `share` is of the problem's n-grams, 0 to 1. The band is `EQUAL` where both have the same words in the same order.
    """

    model_config = ConfigDict(frozen=True)

    benchmark: str
    problem_id: str
    prompt_id: str
    band: Band
    share: float
    problem: str
    prompt: str


@dataclass(frozen=True)
class _Index:
    """Which training prompts, by their places, hold an n-gram; and which one is equal to a text."""

    holders: Mapping[tuple[str, ...], Sequence[int]]
    whole: Mapping[tuple[str, ...], int]


def words(text: str) -> list[str]:
    """Lower-case words, numbers, LaTeX commands and operators; spacing, dollars and punctuation do not count."""
    return _WORD.findall(text.lower())


def overlaps(
    prompts: Sequence[tuple[str, str]], benchmarks: Mapping[str, Sequence[tuple[str, str]]], n: int = NGRAM
) -> list[Overlap]:
    """Every benchmark problem that shares a run of `n` words with a prompt; both sides are (id, text).

    A problem of fewer than n words counts only if a prompt is equal to it word by word. Raises DataError for n < 1.
    """
    if n < 1:
        raise DataError(f"n-grams of {n} words are asked for. Give a number of 1 or more; {NGRAM} is usual.")
    index = _index([text for _, text in prompts], n)
    return [
        _overlap(benchmark, problem, prompts[nearest[0]], *nearest[1:])
        for benchmark, problems in benchmarks.items()
        for problem in problems
        if (nearest := _nearest(index, words(problem[1]), n))
    ]


def band_of(share: float) -> Band:
    """The band of a share of a problem's n-grams, of a problem that is not equal to the prompt."""
    return next(band for band, lowest in _LOWEST.items() if share >= lowest)


def _index(prompts: Sequence[str], n: int) -> _Index:
    holders: dict[tuple[str, ...], list[int]] = defaultdict(list)
    whole: dict[tuple[str, ...], int] = {}
    for place, text in enumerate(prompts):
        tokens = words(text)
        whole.setdefault(tuple(tokens), place)
        for gram in set(_ngrams(tokens, n)):
            holders[gram].append(place)
    return _Index(holders, whole)


def _ngrams(tokens: Sequence[str], n: int) -> Iterator[tuple[str, ...]]:
    return (tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1))


def _nearest(index: _Index, tokens: Sequence[str], n: int) -> tuple[int, float, Band] | None:
    """The place of the prompt that shares most, the share and its band; the first prompt of several."""
    same = index.whole.get(tuple(tokens))
    if same is not None:
        return same, 1.0, Band.EQUAL
    grams = set(_ngrams(tokens, n))
    shared: dict[int, int] = defaultdict(int)
    for gram in grams:
        for place in index.holders.get(gram, ()):
            shared[place] += 1
    if not shared:
        return None
    best = max(shared, key=lambda place: (shared[place], -place))
    share = shared[best] / len(grams)
    return best, share, band_of(share)


def _overlap(benchmark: str, problem: tuple[str, str], prompt: tuple[str, str], share: float, band: Band) -> Overlap:
    return Overlap(
        benchmark=benchmark,
        problem_id=problem[0],
        prompt_id=prompt[0],
        band=band,
        share=share,
        problem=problem[1],
        prompt=prompt[1],
    )
