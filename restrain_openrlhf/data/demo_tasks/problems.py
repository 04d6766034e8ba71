"""Draws distinct problems of a demo task, and writes them to files."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count as counted
from pathlib import Path

from restrain_openrlhf.data.gold import PromptOnly
from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.data.problems import Problem
from restrain_openrlhf.errors import DataError


@dataclass(frozen=True)
class DrawnProblems:
    """The problems of a task.

    `draw` makes one, held out or not; the task has more than `most` and `most_heldout` of them.
    """

    draw: Callable[[random.Random, bool], Problem]
    most: int
    most_heldout: int
    heldout_seed: int = 10

    def training_problems(self, count: int, seed: int = 1) -> list[Problem]:
        """`count` distinct problems that are not held out. Raises DataError for more than `most`."""
        return _distinct(self._drawn(seed, False), count, self.most)

    def heldout_problems(self, count: int, seed: int | None = None) -> list[Problem]:
        """`count` distinct problems that no training set has, except for the shortest.

        Raises DataError for too many.
        """
        return _distinct(self._drawn(self.heldout_seed if seed is None else seed, True), count, self.most_heldout)

    def _drawn(self, seed: int, heldout: bool) -> Iterator[Problem]:
        rng = random.Random(seed)
        return (self.draw(rng, heldout) for _ in counted())


def _distinct(drawn: Iterator[Problem], count: int, most: int) -> list[Problem]:
    """The first `count` problems with different texts. Raises DataError if `count` is more than `most`."""
    if not 1 <= count <= most:
        raise DataError(
            f"{count} problems were requested; this demo task gives 1 to {most:,}. "
            "Choose another number of steps or of prompts per step."
        )
    found: dict[str, Problem] = {}
    for problem in drawn:
        found.setdefault(problem.text, problem)
        if len(found) == count:
            break
    return list(found.values())


def write_prompts(path: Path, problems: Sequence[Problem]) -> None:
    """Write the training file, which has only prompts."""
    write_rows(path, (PromptOnly(id=problem.id, problem=problem.problem, row=problem.row) for problem in problems))


def write_gold(path: Path, problems: Sequence[Problem]) -> None:
    """Write problems with their answers, for evaluation and for the supervised upper bound."""
    write_rows(path, problems)
