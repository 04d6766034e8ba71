"""Finds training prompts that overlap with benchmark problems: shared runs of n words, or a whole short problem."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.errors import DataError

NGRAM = 13
_WORD = re.compile(r"\\?[a-z]+|\d+|[^\s\w$,.;:!?'\"()\[\]{}]")


class Overlap(BaseModel):
    """One benchmark problem and the training prompt that shares most with it; `share` of the problem's n-grams."""

    model_config = ConfigDict(frozen=True)

    benchmark: str
    problem_id: str
    prompt_id: str
    share: float
    exact: bool


@dataclass(frozen=True)
class _Index:
    """Which training prompts hold an n-gram, and the id of each."""

    holders: Mapping[tuple[str, ...], Sequence[int]]
    whole: Mapping[tuple[str, ...], int]
    ids: Sequence[str]


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
    index = _index(prompts, n)
    found = (
        _best(index, benchmark, problem_id, words(text), n)
        for benchmark, problems in benchmarks.items()
        for problem_id, text in problems
    )
    return [overlap for overlap in found if overlap is not None]


def _index(prompts: Sequence[tuple[str, str]], n: int) -> _Index:
    holders: dict[tuple[str, ...], list[int]] = defaultdict(list)
    whole: dict[tuple[str, ...], int] = {}
    for number, (_, text) in enumerate(prompts):
        tokens = words(text)
        whole.setdefault(tuple(tokens), number)
        for gram in set(_ngrams(tokens, n)):
            holders[gram].append(number)
    return _Index(holders, whole, [prompt_id for prompt_id, _ in prompts])


def _ngrams(tokens: Sequence[str], n: int) -> Iterator[tuple[str, ...]]:
    return (tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1))


def _best(index: _Index, benchmark: str, problem_id: str, tokens: Sequence[str], n: int) -> Overlap | None:
    same = index.whole.get(tuple(tokens))
    if same is not None:
        return _overlap(benchmark, problem_id, index.ids[same], 1.0, exact=True)
    grams = set(_ngrams(tokens, n))
    shared: dict[int, int] = defaultdict(int)
    for gram in grams:
        for number in index.holders.get(gram, ()):
            shared[number] += 1
    if not shared:
        return None
    best = max(shared, key=lambda number: (shared[number], -number))
    return _overlap(benchmark, problem_id, index.ids[best], shared[best] / len(grams), exact=False)


def _overlap(benchmark: str, problem_id: str, prompt_id: str, share: float, exact: bool) -> Overlap:
    return Overlap(benchmark=benchmark, problem_id=problem_id, prompt_id=prompt_id, share=share, exact=exact)
