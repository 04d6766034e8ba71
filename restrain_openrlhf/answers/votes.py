"""A group's answers with their classes: votes, ranking and majority, and the warning about missing answers."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

from restrain_openrlhf.answers.kind import AnswerKind, Row
from restrain_openrlhf.answers.shown import Responses, Sample
from restrain_openrlhf.method.types import PastVote, Votes, count_votes

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

    def representatives(self) -> list[str]:
        """For each class, in the order of numbers, the answer that stands for it, whatever the order of rollouts."""
        members: list[list[str]] = [[] for _ in self.votes.counts]
        for answer, label in zip(self.answers, self.classes, strict=True):
            if answer is not None and label is not None:
                members[label].append(answer)
        return list(map(representative, members))

    def ranked(self) -> list[tuple[str, int]]:
        """Each class's representative with its votes, most votes first and ties in alphabetical order."""
        found = zip(self.representatives(), self.votes.counts, strict=True)
        return sorted(found, key=lambda each: (-each[1], each[0]))

    @property
    def majority(self) -> str | None:
        """The representative of the largest class, of equally large ones the first to appear; None without answers."""
        return self.representatives()[self.votes.majority] if self.votes.counts else None


@dataclass(frozen=True)
class StepVote(PastVote):
    """The vote in one step of a prompt, by its `text_hash`: the majority as written, None where nobody answered."""

    prompt: str
    majority: str | None


def representative(answers: Iterable[str] | Counter[str]) -> str:
    """The most frequent text of equal answers, or of their counts; of equally frequent ones the shortest."""
    counts = Counter(answers)
    return min(counts, key=lambda text: (-counts[text], len(text), text))


def end_of(response: str) -> str:
    """The end of a response on one line, where its answer should be."""
    text = " ".join(response[-4 * EXAMPLE_LENGTH :].split())
    return text if len(text) <= EXAMPLE_LENGTH else "…" + text[-EXAMPLE_LENGTH:]


def missing_warning(
    share: float,
    unread: Iterable[str],
    rollouts: str,
    kind: AnswerKind,
    many: float = MANY_MISSING,
    sample: Sample | None = None,
) -> str | None:
    """A warning if more than `many` of the rollouts have no answer, with some of `unread`; else None.

    Of a sample of the groups, it shows what was read in some, and names the kind whose answers agree most.
    """
    if share <= many:
        return None
    shown = list(dict.fromkeys(unread))[:EXAMPLES]
    why = f"Each of them was cut off at the length limit{'' if sample else ', or its text is not kept'}."
    if shown:
        examples = f"Not read, by their ends: {'; '.join(map(repr, shown))}."
        compared = sample.in_words(kind) if sample else ()
        why = " ".join([examples, *compared, kind.reads, "A response that is cut off has none either."])
    return (
        f"{share:.1%} of {rollouts} have no answer, and do not vote. {why} The kind of answer is {kind.name!r}: "
        f"{kind.advice}"
    )


@dataclass
class MissingSoFar:
    """Counts rollouts, all and those without a class, and the largest group's; keeps some of their ends and groups."""

    rollouts: int = 0
    missing: int = 0
    largest: int = 0
    unread: list[str] = field(default_factory=list)
    sample: Sample = field(default_factory=Sample)

    def add(self, group: Responses, classes: Sequence[int | None], unread: Iterable[str] | None = None) -> None:
        """Add one group: its responses, as far as they are known, each one's class, and ends of responses without."""
        self.sample.add(group)
        self.rollouts += len(classes)
        self.missing += classes.count(None)
        self.largest = max(self.largest, len(classes))
        found = zip(group.texts, classes, strict=False)
        ends = unread or (end_of(text) for text, label in found if label is None and text is not None)
        for end in ends if len(self.unread) < EXAMPLES else ():
            self.unread += [end] if len(self.unread) < EXAMPLES and end not in self.unread else []

    @property
    def share(self) -> float:
        return self.missing / self.rollouts if self.rollouts else 0.0

    def warning(self, rollouts: str, kind: AnswerKind, many: float = MANY_MISSING) -> str | None:
        """The `missing_warning` for all groups so far."""
        return missing_warning(self.share, self.unread, rollouts, kind, many, self.sample)
