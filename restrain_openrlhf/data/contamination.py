"""Finds training prompts that overlap with benchmark problems: shared runs of n words, or a whole short problem."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

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


def words(text: str) -> list[str]:
    """Lower-case words, numbers, LaTeX commands and operators; spacing, dollars and punctuation do not count."""
    return _WORD.findall(text.lower())


def overlaps(
    prompts: Sequence[tuple[str, str]], benchmarks: Mapping[str, Sequence[tuple[str, str]]], n: int = NGRAM
) -> list[Overlap]:
    """Every benchmark problem that shares a run of `n` words with a prompt; both sides are (id, text).

    A problem of fewer than n words counts only if a prompt is equal to it word by word.
    """
    index = _Index(prompts, n)
    nearest = (index.nearest(name, problem) for name, problems in benchmarks.items() for problem in problems)
    return [found for found in nearest if found is not None]


def band_of(share: float) -> Band:
    """The band of a share of a problem's n-grams, of a problem that is not equal to the prompt."""
    return next(band for band, lowest in _LOWEST.items() if share >= lowest)


class _Index:
    """Which training prompts, by their places, hold an n-gram; and which one is equal to a text."""

    def __init__(self, prompts: Sequence[tuple[str, str]], n: int) -> None:
        self.prompts, self.n = prompts, n
        self.holders: dict[tuple[str, ...], list[int]] = defaultdict(list)
        self.whole: dict[tuple[str, ...], int] = {}
        for place, (_, text) in enumerate(prompts):
            tokens = tuple(words(text))
            self.whole.setdefault(tokens, place)
            for gram in self._ngrams(tokens):
                self.holders[gram].append(place)

    def _ngrams(self, tokens: tuple[str, ...]) -> set[tuple[str, ...]]:
        return {tokens[start : start + self.n] for start in range(len(tokens) - self.n + 1)}

    def nearest(self, benchmark: str, problem: tuple[str, str]) -> Overlap | None:
        """The problem with the prompt that shares most, the first of several; None where none shares anything."""
        tokens = tuple(words(problem[1]))
        place, share, band = self.whole.get(tokens), 1.0, Band.EQUAL
        if place is None:
            grams = self._ngrams(tokens)
            shared = Counter(place for gram in grams for place in self.holders.get(gram, ()))
            if not shared:
                return None
            place = max(shared, key=lambda place: (shared[place], -place))
            share = shared[place] / len(grams)
            band = band_of(share)
        prompt_id, prompt = self.prompts[place]
        return Overlap(
            benchmark=benchmark,
            problem_id=problem[0],
            prompt_id=prompt_id,
            band=band,
            share=share,
            problem=problem[1],
            prompt=prompt,
        )
