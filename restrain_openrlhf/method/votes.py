"""From classes of equal answers to votes, and what becomes of missing answers."""

from collections import Counter
from collections.abc import Callable, Sequence

from restrain_openrlhf.errors import GroupError
from restrain_openrlhf.method.types import Votes

Classes = Sequence[int | None]


def count_votes(classes: Classes) -> Votes:
    """Votes of n classes; labels are numbered 0..m-1. Missing answers are in n and in no label.

    Raises GroupError for a group without rollouts, and for labels that are not exactly 0..m-1.
    """
    if not classes:
        raise GroupError("A group has no rollouts, so there is nothing to vote on. Leave the prompt out.")
    counts = Counter(label for label in classes if label is not None)
    if set(counts) != set(range(len(counts))):
        raise GroupError(
            f"The group's classes are {sorted(counts)}; they must be numbered 0 to {len(counts) - 1} without gaps. "
            "Number them with restrain_openrlhf.answers.classes."
        )
    return Votes(tuple(classes), tuple(counts[label] for label in range(len(counts))))


def exclude_missing(classes: Classes) -> Votes:
    """A missing answer is no label and not in M, but the rollout stays in n."""
    return count_votes(classes)


def missing_as_label(classes: Classes) -> Votes:
    """All missing answers form one more label, numbered last."""
    extra = max((label for label in classes if label is not None), default=-1) + 1
    return count_votes([extra if label is None else label for label in classes])


CountVotes = Callable[[Classes], Votes]
