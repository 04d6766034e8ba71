"""Keeps a benchmark's own problems out of a training set."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from restrain_openrlhf.data.contamination import words


class HasProblem(Protocol):
    """Anything with a problem's text."""

    @property
    def problem(self) -> str:
        """The text."""


Item = TypeVar("Item", bound=HasProblem)


def without_problems(items: Sequence[Item], held_out: Iterable[str]) -> list[Item]:
    """The items whose problem is none of `held_out`, word by word: case, spacing and punctuation do not count."""
    taken = {tuple(words(text)) for text in held_out}
    return [item for item in items if tuple(words(item.problem)) not in taken]
