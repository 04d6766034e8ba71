"""A group's answers with their classes: votes, ranking and majority, and the warning about missing answers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

from restrain_openrlhf.answers.kind import AnswerKind, Row, number_classes
from restrain_openrlhf.method.types import Votes, count_votes

# Share of rollouts. If more have no answer, the prompts, their template or the length limit do not fit.
MANY_MISSING = 0.2
EXAMPLES, EXAMPLE_LENGTH = 3, 100


@dataclass(frozen=True)
class GroupAnswers:
    """The answers of a group's rollouts as written, None if missing, and the class of each."""

    answers: tuple[str | None, ...]
    classes: tuple[int | None, ...]

    @classmethod
    def of(cls, kind: AnswerKind, answers: Sequence[str | None], row: Row) -> Self:
        """Classify answers by their kind. Raises DataError if the row is unusable."""
        return cls(tuple(answers), tuple(kind.classes(answers, row)))

    @cached_property
    def votes(self) -> Votes:
        """The votes of the group. Raises GroupError if it has no rollouts."""
        return count_votes(self.classes)

    def firsts(self) -> list[str]:
        """Each class's first answer, in the order of the classes' numbers."""
        places = (self.classes.index(label) for label in range(len(self.votes.counts)))
        return [answer for place in places if (answer := self.answers[place]) is not None]

    def ranked(self) -> list[tuple[str, int]]:
        """Each class's first answer with its votes, most votes first and ties in order of appearance."""
        found = zip(self.firsts(), self.votes.counts, strict=True)
        return sorted(found, key=lambda each: -each[1])

    @property
    def majority(self) -> str | None:
        """The first answer of the largest class; None if no rollout has an answer."""
        return next((answer for answer, _ in self.ranked()), None)

    def first(self, n: int) -> Self:
        """The first n rollouts, with their classes renumbered."""
        return type(self)(self.answers[:n], tuple(number_classes(self.classes[:n])))


def end_of(response: str) -> str:
    """The end of a response on one line, where its answer should be."""
    text = " ".join(response[-4 * EXAMPLE_LENGTH :].split())
    return text if len(text) <= EXAMPLE_LENGTH else "…" + text[-EXAMPLE_LENGTH:]


def missing_warning(
    share: float, unread: Iterable[str], rollouts: str, kind: AnswerKind, many: float = MANY_MISSING
) -> str | None:
    """A warning if more than `many` of the rollouts have no answer, with some of `unread`; else None."""
    if share <= many:
        return None
    shown = list(dict.fromkeys(unread))[:EXAMPLES]
    examples = f"Not read, by their ends: {'; '.join(map(repr, shown))}." if shown else "No text of such is at hand."
    return (
        f"{share:.1%} of {rollouts} have no answer, and do not vote. {examples} {kind.reads} A response that is cut "
        f"off has none either. The kind of answer is {kind.name!r}: {kind.advice}"
    )


@dataclass
class MissingSoFar:
    """Counts rollouts, and those without a class, group by group, and keeps the ends of some."""

    rollouts: int = 0
    missing: int = 0
    unread: list[str] = field(default_factory=list)

    def add(self, responses: Iterable[str], classes: Sequence[int | None]) -> None:
        """Add one group: each response's text and class."""
        unread = [text for text, label in zip(responses, classes, strict=True) if label is None]
        self.rollouts += len(classes)
        self.missing += len(unread)
        for end in map(end_of, unread if len(self.unread) < EXAMPLES else ()):
            self.unread += [end] if len(self.unread) < EXAMPLES and end not in self.unread else []

    def warning(self, rollouts: str, kind: AnswerKind) -> str | None:
        """The `missing_warning` for all groups so far."""
        share = self.missing / self.rollouts if self.rollouts else 0.0
        return missing_warning(share, self.unread, rollouts, kind)
