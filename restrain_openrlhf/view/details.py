"""What an open group shows: its prompt, and its answer classes side by side with their responses."""

from dataclasses import dataclass

from restrain_openrlhf.kept import KeptGroup, KeptRollout
from restrain_openrlhf.kept.gold import Gold
from restrain_openrlhf.view.summary import members_of, ranked_classes


@dataclass(frozen=True)
class ClassDetails:
    """One class of equal answers, with its votes and label weight w_j; None: missing answers that are no label."""

    answer: str | None
    votes: int | None
    label_weight: float | None
    right: bool | None
    rollouts: tuple[KeptRollout, ...]


@dataclass(frozen=True)
class GroupDetails:
    """An open group. `classes` has the majority first, and rollouts without a class last; `gold` is None without it."""

    step: int
    group: int
    gold: str | None
    classes: tuple[ClassDetails, ...]


def details(group: KeptGroup, gold: Gold) -> GroupDetails:
    """The group's classes, graded where gold has the prompt."""
    classless = list(members_of(group, None))
    members = [*ranked_classes(group), *([classless] if classless else [])]
    return GroupDetails(
        step=group.step,
        group=group.group,
        gold=gold.of(group.prompt),
        classes=tuple(_class(group.prompt, each, gold) for each in members),
    )


def _class(prompt: str, members: list[KeptRollout], gold: Gold) -> ClassDetails:
    first = members[0]
    right = gold.right(prompt, first.answer)
    return ClassDetails(first.answer, first.class_votes, first.label_weight, right, tuple(members))
