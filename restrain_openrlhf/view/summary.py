"""What the list shows of a group: its vote, whether its majority flipped, and whether it was right."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from restrain_openrlhf.answers import canonical_key
from restrain_openrlhf.kept import KeptGroup, KeptRollout
from restrain_openrlhf.kept.gold import Gold

# The list and the chart draw the answers themselves; a page of text is no answer there.
SHOWN = 120


@dataclass(frozen=True)
class AnswerVotes:
    """Votes of one answer of a group. `number` is equal for equal answers of one prompt, at all steps.

    `answer` is None for missing answers where the method counts them as a label. `right` is None without gold.
    """

    number: int
    answer: str | None
    votes: int
    right: bool | None


@dataclass(frozen=True)
class GroupSummary:
    """One group. `votes` has the majority first; `missing` counts rollouts without an answer.

    `flipped_from` is the majority answer that this one replaced, None where it did not flip: the answer of the same
    prompt's last group with a majority before this one, or of the reference where there was none before. `graded` says
    that gold has the prompt.
    """

    step: int
    group: int
    prompt_id: str
    prompt_weight: float
    penalized: bool
    voters: int
    majority_count: int
    missing: int
    votes: tuple[AnswerVotes, ...]
    flipped_from: str | None
    graded: bool


class Summaries:
    """Summaries of a run's groups, which come in the order of their steps."""

    def __init__(self, gold: Gold, reference: Mapping[str, str]) -> None:
        """`reference` is the frozen model's majority answer by prompt_id; empty where the run has none."""
        self._gold = gold
        self._last = dict(reference)
        self._numbers: dict[str, dict[str | None, int]] = {}

    def summary(self, group: KeptGroup) -> GroupSummary:
        """The group's, as the next one of its prompt."""
        classes = ranked_classes(group)
        majority = classes[0][0].answer if classes else None
        return GroupSummary(
            step=group.step,
            group=group.group,
            prompt_id=group.prompt_id,
            prompt_weight=group.prompt_weight,
            penalized=group.penalized,
            voters=group.voters,
            majority_count=group.majority_count,
            missing=sum(rollout.answer is None for rollout in group.rollouts),
            votes=tuple(self._votes(group, members) for members in classes),
            flipped_from=self._flipped_from(group.prompt_id, majority),
            graded=self._gold.of(group.prompt) is not None,
        )

    def _votes(self, group: KeptGroup, members: list[KeptRollout]) -> AnswerVotes:
        answer = members[0].answer
        numbers = self._numbers.setdefault(group.prompt_id, {})
        number = numbers.setdefault(None if answer is None else canonical_key(answer), len(numbers))
        shown = None if answer is None else answer[:SHOWN]
        return AnswerVotes(number, shown, len(members), self._gold.right(group.prompt, answer))

    def _flipped_from(self, prompt_id: str, majority: str | None) -> str | None:
        if majority is None:
            return None
        last = self._last.get(prompt_id)
        self._last[prompt_id] = majority
        flipped = last is not None and canonical_key(last) != canonical_key(majority)
        return last[:SHOWN] if last is not None and flipped else None


def ranked_classes(group: KeptGroup) -> list[list[KeptRollout]]:
    """The members of each answer class, largest class first, ties by first appearance."""
    labels = Counter(rollout.label for rollout in group.rollouts if rollout.label is not None)
    ranked = sorted(labels, key=lambda label: (-labels[label], label))
    return [list(members_of(group, label)) for label in ranked]


def members_of(group: KeptGroup, label: int | None) -> Iterator[KeptRollout]:
    """The rollouts of one class; None: those that are in none."""
    return (rollout for rollout in group.rollouts if rollout.label == label)
