"""What is shown of overlaps: how many problems are in each band, and the nearest pairs of a band."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from restrain_openrlhf.data.contamination import Band, Overlap, words

SHOWN_LENGTH = 300


@dataclass(frozen=True)
class BandCounts:
    """Numbers of a benchmark's problems: by band, without any overlap, and too short for an n-gram among those."""

    benchmark: str
    problems: int
    by_band: Mapping[Band, int]
    none: int
    short: int


def band_counts(
    found: Sequence[Overlap], benchmarks: Mapping[str, Sequence[tuple[str, str]]], n: int
) -> Iterator[BandCounts]:
    """One for each benchmark, whose problems are (id, text); the bands and `none` add up to its problems."""
    for name, problems in benchmarks.items():
        of_this = {item.problem_id: item.band for item in found if item.benchmark == name}
        without = [text for problem_id, text in problems if problem_id not in of_this]
        short = sum(len(words(text)) < n for text in without)
        yield BandCounts(name, len(problems), Counter(of_this.values()), len(without), short)


def nearest_pairs(found: Sequence[Overlap], band: Band, count: int) -> list[Overlap]:
    """The `count` pairs of a band that share most, in the order of the benchmarks where they share alike."""
    return sorted((item for item in found if item.band is band), key=lambda item: -item.share)[:count]


def pair_lines(pair: Overlap) -> Iterator[str]:
    """A pair in three lines: who, the problem and the prompt, each cut to 300 characters."""
    yield f"{pair.band}, share {pair.share:.2f}: {pair.benchmark} {pair.problem_id}, prompt {pair.prompt_id}"
    yield f"  problem: {_shown(pair.problem)}"
    yield f"  prompt:  {_shown(pair.prompt)}"


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_LENGTH else line[: SHOWN_LENGTH - 1] + "…"
