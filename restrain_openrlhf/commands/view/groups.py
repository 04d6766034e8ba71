"""What the page shows of a run: its notes, and each kept group as a line of the list and with its open classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.answers.shown import parts, place
from restrain_openrlhf.answers.votes import representative
from restrain_openrlhf.evaluation.labels import PromptGold, gold_for
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.kept import KeptGroup, KeptRollout, kept_files, kept_prompts, read_kept

# Longest answer in the list and the chart, where a whole page of text would not fit.
MAX_SHOWN_LENGTH = 120
FLIPPED = "Flipped: the majority answer is not that of the prompt's previous group."


@dataclass(frozen=True)
class ViewedRun:
    """A run to look at: whether its answers are mathematics, and its prompts' gold."""

    folder: Path
    mathematics: bool
    gold: PromptGold
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name on the page: the last two parts of the folder's path."""
        return "/".join(self.folder.resolve().parts[-2:])


def viewed_run(folder: Path, gold: Path | None) -> ViewedRun:
    """Collect what the page needs beside the groups.

    Raises a RestrainError if nothing was kept, as `read_kept` does, or if a file cannot be used.
    """
    if not kept_files(folder):
        next(read_kept(folder))
    run, notes = RunFolder(folder), [FLIPPED]
    answers = PromptGold(kind=run.kind)
    if gold:
        prompts = kept_prompts(folder, skip_damaged=True)
        answers = gold_for(prompts, gold, run.flags(), run.kind)
        graded = sum(answers.of(prompt) is not None for prompt in prompts)
        notes.insert(0, f"Gold has {graded:,} of {len(prompts):,} prompts.")
    return ViewedRun(folder, not run.record().get("answers"), answers, tuple(notes))


@dataclass(frozen=True)
class ClassDetails:
    """One class of equal answers with its votes and label weight w_j, which are None for answers that are no label.

    `answer` is None for missing answers, and `right` without gold. `read` has the words of each rollout that were read
    as its answer, between those before and behind them; only the response's end where they are not found.
    """

    answer: str | None
    votes: int | None
    label_weight: float | None
    right: bool | None
    rollouts: tuple[KeptRollout, ...]
    read: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class GroupDetails:
    """One group in full. `classes` has the majority first, and rollouts without a class last."""

    gold: str | None
    classes: tuple[ClassDetails, ...]


def details(group: KeptGroup, gold: PromptGold) -> GroupDetails:
    """The group's classes, graded if gold has the prompt."""
    classless = [rollout for rollout in group.rollouts if rollout.label is None]
    found = []
    for members in [*ranked_classes(group), *([classless] if classless else [])]:
        first = standing(members)
        right = gold.right(group.prompt, first.answer)
        read = tuple(_read(each, gold, group.prompt) for each in members)
        found.append(ClassDetails(first.answer, first.class_votes, first.label_weight, right, tuple(members), read))
    return GroupDetails(gold.of(group.prompt), tuple(found))


def _read(rollout: KeptRollout, gold: PromptGold, prompt: str) -> tuple[str, str, str]:
    """A run keeps no columns, so a letter is looked for where the option's text, which is the answer, is not there."""
    kind, row, response = gold.kind, gold.row(prompt), rollout.response
    at = place(kind, response, rollout.answer, row)
    if at is None and rollout.answer is not None and kind.is_plain:
        at = place(kind, response, kind.extract(response, row), row)
    return parts(response, at)


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


@dataclass(frozen=True)
class AnswerVotes:
    """Votes for one answer of a group. Equal answers to a prompt have one `number`, at all steps.

    `answer` is None for missing answers, if the method counts them as a label. `right` is None without gold.
    """

    number: int
    answer: str | None
    votes: int
    right: bool | None


@dataclass(frozen=True)
class GroupSummary:
    """One group in the list. `votes` has the majority first; `missing` counts rollouts without an answer.

    `flipped_from` is the majority answer of the same prompt's last group with one, if that differs from this one's;
    None otherwise. `graded` says whether gold has the prompt.
    """

    step: int
    group: int
    prompt_id: str
    prompt_weight: float
    penalized: float
    voters: int
    majority_count: int
    missing: int
    votes: tuple[AnswerVotes, ...]
    flipped_from: str | None
    graded: bool


class Summaries:
    """Makes the summaries of a run's groups, which come in order: a flip is a change from an earlier step.

    `prompts` has the text of each prompt so far, by its id.
    """

    def __init__(self) -> None:
        self.prompts: dict[str, str] = {}
        self._last: dict[str, tuple[str, str]] = {}
        self._numbers: dict[str, dict[str | None, int]] = {}

    def summary(self, group: KeptGroup, opened: GroupDetails) -> GroupSummary:
        """The summary of a group with these details, which comes after all earlier groups of its prompt."""
        self.prompts[group.prompt_id] = group.prompt
        return GroupSummary(
            step=group.step,
            group=group.group,
            prompt_id=group.prompt_id,
            prompt_weight=group.prompt_weight,
            penalized=group.penalized,
            voters=group.voters,
            majority_count=group.majority_count,
            missing=sum(rollout.answer is None for rollout in group.rollouts),
            votes=tuple(self._votes(group.prompt_id, each) for each in opened.classes if each.votes is not None),
            flipped_from=_shown(self._flipped_from(group.prompt_id, opened)),
            graded=opened.gold is not None,
        )

    def _votes(self, prompt_id: str, found: ClassDetails) -> AnswerVotes:
        numbers = self._numbers.setdefault(prompt_id, {})
        number = numbers.setdefault(found.rollouts[0].key, len(numbers))
        return AnswerVotes(number, _shown(found.answer), len(found.rollouts), found.right)

    def _flipped_from(self, prompt_id: str, opened: GroupDetails) -> str | None:
        first = standing(opened.classes[0].rollouts)
        if first.answer is None:
            return None
        before = self._last.get(prompt_id)
        self._last[prompt_id] = (first.answer, first.key or "")
        return before[0] if before is not None and before[1] != first.key else None


def _shown(answer: str | None) -> str | None:
    return None if answer is None else answer[:MAX_SHOWN_LENGTH]
