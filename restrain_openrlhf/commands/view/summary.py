"""What the page shows of a group: a summary of its vote in the list, and its classes with responses when open."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from restrain_openrlhf.answers.votes import representative
from restrain_openrlhf.evaluation.labels import PromptGold
from restrain_openrlhf.records.kept import KeptGroup, KeptRollout

# Longest answer in the list and the chart, where a whole page of text would not fit.
MAX_SHOWN_LENGTH = 120


# From a prompt_id, the frozen model's majority answer and its key; None if there is none.
FrozenVotes = Callable[[str], tuple[str, str] | None]


def no_votes(_prompt_id: str) -> None:
    """The frozen votes of a run without a reference: none."""


@dataclass(frozen=True)
class AnswerVotes:
    """Votes for one answer of a group. Equal answers to a prompt have one `number`, at all steps of all runs.

    `answer` is None for missing answers, if the method counts them as a label. `right` is None without gold.
    """

    number: int
    answer: str | None
    votes: int
    right: bool | None


@dataclass(frozen=True)
class GroupSummary:
    """One group of a run. `votes` has the majority first; `missing` counts rollouts without an answer.

    `flipped_from` is the earlier majority answer if it differs from this group's: that of the last group of the same
    prompt with a majority, or for the first such group that of the reference. It is None otherwise. `graded` says
    whether gold has the prompt.
    """

    step: int
    group: int
    run: int
    prompt_id: str
    prompt_weight: float
    penalized: bool
    voters: int
    majority_count: int
    missing: int
    votes: tuple[AnswerVotes, ...]
    flipped_from: str | None
    graded: bool


@dataclass(frozen=True)
class Step:
    """One step's groups, and its prompts that no earlier step had, by prompt_id."""

    groups: tuple[GroupSummary, ...]
    prompts: Mapping[str, str]


class Summaries:
    """Makes summaries of each run's groups. Steps come in order, because a flip is a change from an earlier step."""

    def __init__(self, gold: PromptGold, *references: FrozenVotes) -> None:
        """`references` has the frozen votes of each run."""
        self._gold, self._references = gold, references
        self._last: dict[tuple[int, str], tuple[str, str]] = {}
        self._numbers: dict[str, dict[str | None, int]] = {}

    def step(self, groups: list[KeptGroup], run: int = 0) -> Step:
        """Summaries of the run's next step."""
        new = {group.prompt_id: group.prompt for group in groups if group.prompt_id not in self._numbers}
        return Step(tuple(self.summary(group, run) for group in groups), new)

    def summary(self, group: KeptGroup, run: int = 0) -> GroupSummary:
        """The summary of a group, which comes after all earlier groups of its prompt in this run."""
        numbers = self._numbers.setdefault(group.prompt_id, {})
        votes = []
        for members in ranked_classes(group):
            answer = standing(members).answer
            number = numbers.setdefault(members[0].key, len(numbers))
            right = self._gold.right(group.prompt, answer)
            votes.append((answer, AnswerVotes(number, _shown(answer), len(members), right)))
        return GroupSummary(
            step=group.step,
            group=group.group,
            run=run,
            prompt_id=group.prompt_id,
            prompt_weight=group.prompt_weight,
            penalized=group.penalized,
            voters=group.voters,
            majority_count=group.majority_count,
            missing=sum(rollout.answer is None for rollout in group.rollouts),
            votes=tuple(each for _, each in votes),
            flipped_from=_shown(self._flipped_from(group, run)),
            graded=self._gold.of(group.prompt) is not None,
        )

    def _flipped_from(self, group: KeptGroup, run: int) -> str | None:
        first = next((standing(members) for members in ranked_classes(group)), None)
        if first is None or first.answer is None:
            return None
        before = self._last.get((run, group.prompt_id)) or self._references[run](group.prompt_id)
        answer, key = before or (None, None)
        self._last[run, group.prompt_id] = (first.answer, first.key or "")
        return answer if answer is not None and key != first.key else None


def _shown(answer: str | None) -> str | None:
    return None if answer is None else answer[:MAX_SHOWN_LENGTH]


@dataclass(frozen=True)
class ClassDetails:
    """One class of equal answers with its votes and label weight w_j, which are None for answers that are no label."""

    answer: str | None
    votes: int | None
    label_weight: float | None
    right: bool | None
    rollouts: tuple[KeptRollout, ...]


@dataclass(frozen=True)
class GroupDetails:
    """One group in full. `classes` has the majority first, and rollouts without a class last."""

    step: int
    group: int
    gold: str | None
    classes: tuple[ClassDetails, ...]


def details(group: KeptGroup, gold: PromptGold) -> GroupDetails:
    """The group's classes, graded if gold has the prompt."""
    classless = [rollout for rollout in group.rollouts if rollout.label is None]
    found = []
    for members in [*ranked_classes(group), *([classless] if classless else [])]:
        first = standing(members)
        right = gold.right(group.prompt, first.answer)
        found.append(ClassDetails(first.answer, first.class_votes, first.label_weight, right, tuple(members)))
    return GroupDetails(group.step, group.group, gold.of(group.prompt), tuple(found))


def standing(members: Sequence[KeptRollout]) -> KeptRollout:
    """The first rollout of a class whose answer stands for the class."""
    answer = representative(each.answer or "" for each in members)
    return next(each for each in members if (each.answer or "") == answer)


def ranked_classes(group: KeptGroup) -> list[list[KeptRollout]]:
    """The members of each answer class, the largest class first and ties by first appearance."""
    classes: dict[int, list[KeptRollout]] = {}
    for rollout in group.rollouts:
        if rollout.label is not None:
            classes.setdefault(rollout.label, []).append(rollout)
    return [classes[label] for label in sorted(classes, key=lambda label: (-len(classes[label]), label))]
