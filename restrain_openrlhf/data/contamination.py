"""Finds training prompts that overlap with benchmark problems: they share n words in a row, or are equal."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

NGRAM = 13
_WORD = re.compile(r"\\?[^\W\d_]+|\d+|[^\s\w$,.;:!?'\"()\[\]{}]")


class Band(StrEnum):
    """How much of a problem a training prompt contains. A band includes its lower end, but not its upper end.

    Only `MOST` includes 1, which is a whole problem in a longer prompt.
    """

    EQUAL = "equal"
    MOST = "0.5-1"
    SOME = "0.3-0.5"
    LITTLE = "0-0.3"


_LOWEST = {Band.MOST: 0.5, Band.SOME: 0.3, Band.LITTLE: 0.0}


class Overlap(BaseModel):
    """A benchmark problem and the training prompt that shares most with it.

    `share` is the share of the problem's n-grams that the prompt has. The band is `EQUAL` where both have the same
    words in the same order.
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
    """The lower-case words, numbers, LaTeX commands and operators of a text, without dollars and punctuation."""
    return _WORD.findall(text.lower())


def overlaps(
    prompts: Iterable[tuple[str, str]], benchmarks: Mapping[str, Sequence[tuple[str, str]]], n: int = NGRAM
) -> list[Overlap]:
    """Every benchmark problem that shares a run of `n` words with a prompt; both sides are (id, text).

    A problem of fewer than n words only counts if a prompt is equal to it word by word. Only the benchmarks are in
    memory, so there may be any number of prompts.
    """
    index = _Index(benchmarks, n)
    for prompt in prompts:
        index.compare(prompt)
    return [each.overlap() for each in index.problems if each.nearest is not None]


def band_of(share: float) -> Band:
    """The band of a share, for a problem that is not equal to the prompt."""
    return next(band for band, lowest in _LOWEST.items() if share >= lowest)


@dataclass
class _Problem:
    """A benchmark's problem with `grams` n-grams, and the nearest prompt so far, which has `shared` of them."""

    benchmark: str
    id: str
    text: str
    grams: int
    nearest: tuple[str, str] | None = None
    shared: int = 0
    is_equal: bool = False

    def meet(self, prompt: tuple[str, str], shared: int, is_equal: bool = False) -> None:
        """Compare with a prompt. The first equal prompt is nearest, else the first of those that share most."""
        if (is_equal, shared) > (self.is_equal, self.shared) and not self.is_equal:
            self.nearest, self.shared, self.is_equal = prompt, shared, is_equal

    def overlap(self) -> Overlap:
        """The overlap with the nearest prompt."""
        assert self.nearest is not None, "asked for where there is one"
        share = 1.0 if self.is_equal else self.shared / self.grams
        return Overlap(
            benchmark=self.benchmark,
            problem_id=self.id,
            prompt_id=self.nearest[0],
            band=Band.EQUAL if self.is_equal else band_of(share),
            share=share,
            problem=self.text,
            prompt=self.nearest[1],
        )


class _Index:
    """The places of problems by their n-grams, and by their whole text."""

    def __init__(self, benchmarks: Mapping[str, Sequence[tuple[str, str]]], n: int) -> None:
        self.n = n
        self.problems: list[_Problem] = []
        self.holders: dict[tuple[str, ...], list[int]] = defaultdict(list)
        self.whole: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for name, (problem_id, text) in ((name, each) for name, problems in benchmarks.items() for each in problems):
            tokens, place = tuple(words(text)), len(self.problems)
            grams = set(self._ngrams(tokens))
            self.whole[tokens].append(place)
            for gram in grams:
                self.holders[gram].append(place)
            self.problems.append(_Problem(name, problem_id, text, len(grams)))

    def _ngrams(self, tokens: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        return (tokens[start : start + self.n] for start in range(len(tokens) - self.n + 1))

    def compare(self, prompt: tuple[str, str]) -> None:
        """Compare one prompt with all problems."""
        tokens = tuple(words(prompt[1]))
        for place in self.whole.get(tokens, ()):
            self.problems[place].meet(prompt, 0, is_equal=True)
        known = {gram for gram in self._ngrams(tokens) if gram in self.holders}
        for place, shared in Counter(place for gram in known for place in self.holders[gram]).items():
            self.problems[place].meet(prompt, shared)
