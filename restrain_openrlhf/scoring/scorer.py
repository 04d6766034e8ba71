"""The scorer of a run or a service: it turns the answers of one group into the group's score."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, GroupAnswers, Row
from restrain_openrlhf.answers.kind import PROBLEM, number_classes
from restrain_openrlhf.answers.votes import StepVote
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.errors import DataError, ReferencePassError
from restrain_openrlhf.method import GroupScore, History, Method, MethodSettings, PromptFacts, ReferenceVote, build
from restrain_openrlhf.reference import Reference, ReferenceRow, load_reference
from restrain_openrlhf.reference.artifact import refuse_other_kind
from restrain_openrlhf.reference.prompts import PromptRows
from restrain_openrlhf.scoring.wire import GroupRequest

# The class of all right answers, until the classes are numbered again.
RIGHT_CLASS = -1


@dataclass(frozen=True)
class GroupScorer:
    """A method, the offline pass that it may need, and the kind of answer that the votes are about.

    `rows` holds the prompts' own data, for groups that come without a row.

    Raises ReferencePassError when the method needs a reference and there is none, or one of another kind of answer.
    """

    method: Method
    reference: Reference | None = None
    kind: AnswerKind = MATHEMATICS
    rows: PromptRows = field(default_factory=PromptRows)

    def __post_init__(self) -> None:
        self.kind.refuse_missing_packages()
        if self.method.needs_reference and self.reference is None:
            raise ReferencePassError(
                f"The method {self.method.name!r} needs the frozen model's vote on every prompt, but no reference was "
                "given. Make one with `restrain reference` and name it under `reference:`."
            )
        if self.reference is not None:
            refuse_other_kind(self.reference, self.kind)

    @classmethod
    def by(cls, settings: MethodSettings, reference: Path | None, kind: AnswerKind, answer_rows: Path | None) -> Self:
        """The scorer of a configuration, with its files read. Raises a RestrainError for one that cannot be used."""
        opened, method = load_reference(reference) if reference else None, build(settings)
        rows = PromptRows.of(answer_rows, kind, method.reads_gold)
        kind.check(rows.rows.values())
        return cls(method, opened, kind, rows)

    def score(
        self,
        prompt: str,
        answers: Sequence[str | None],
        gold: str | None = None,
        entropies: tuple[float, ...] | None = None,
        row: Row | None = None,
        past: tuple[StepVote, ...] = (),
    ) -> GroupScore:
        """The group's score. `prompt` is the text that the policy saw, `answers` the final answers (None: missing).

        A kind of answer may run programs in a sandbox or ask a judge, and take seconds, so call this from a thread;
        otherwise it is pure. Gold reaches the method only if the method says that it reads gold.

        Raises a RestrainError if the group cannot be scored: it has another size than the method draws, the
        reference lacks the prompt or has another row of it, a method that reads gold finds none, or the row lacks what
        the kind of answer needs.
        """
        known = self.row_of(prompt) if row is None else row
        reference = self._reference_row(prompt, known)
        group = GroupAnswers.of(self.kind, answers, known)
        score = score_group(self.method, group, reference, gold, prompt, entropies, self.kind, known, past)
        # A method that reads gold has one label for all right answers; the majority is still that of the vote.
        labelled = GroupAnswers(score.answers, score.votes.classes)
        keys = [self.kind.key(answer, known) for answer in labelled.representatives()]
        majority = None if group.majority is None else self.kind.key(group.majority, known)
        return replace(score, keys=tuple(keys), majority_key=majority)

    def check(self, prompt: str) -> None:
        """Raise what `score` would raise because of the prompt, whatever the answers are."""
        self._reference_row(prompt, self.row_of(prompt))

    def row_of(self, prompt: str) -> Row:
        """The prompt's own data: of `rows`, or its problem as the reference has it, or else its text.

        Raises DataError if `rows` is not empty and has no row for the prompt.
        """
        known = None if self.reference is None else self.reference.rows.get(text_hash(prompt))
        problem = prompt if known is None else known.row.get(PROBLEM, prompt)
        return self.rows.find(prompt) or self.kind.row(problem, {})

    def _reference_row(self, prompt: str, row: Row) -> ReferenceRow | None:
        if self.reference is None or not self.method.needs_reference:
            return None
        return self.reference.row(prompt, own=row)


def score_whole_group(scorer: GroupScorer, group: GroupRequest) -> GroupScore:
    """The score of a group of texts, as `GroupScorer.score` gives it, as every trainer and service reads it."""
    row = scorer.row_of(group.prompt) if group.row is None else group.row
    texts, truncated = [each.text for each in group.responses], [not each.finished for each in group.responses]
    answers = scorer.kind.voted_answers(texts, truncated, row)
    return scorer.score(group.prompt, answers, group.gold, group.entropies, row, group.past)


def score_group(
    method: Method,
    group: GroupAnswers,
    vote: ReferenceRow | None,
    gold: str | None,
    prompt: str,
    entropies: tuple[float, ...] | None = None,
    kind: AnswerKind = MATHEMATICS,
    row: Row | None = None,
    past: tuple[StepVote, ...] = (),
) -> GroupScore:
    """The method's score of the group; `vote` is the frozen model's, and `row` the prompt's own data.

    For a method that reads gold, all right answers to a prompt that has gold form one class. The grader of evaluations
    decides what is right, so that answers of several classes of the vote may be right
    (docs/decisions/0004-one-grader.md). Raises DataError if a method that needs gold finds none.
    """
    if method.needs_gold and not gold:
        raise DataError(
            f"The method {method.name!r} learns from gold answers, but the prompt {prompt[:80]!r} has none. Give the "
            "column that holds them, or choose a label-free method."
        )
    known = kind.row(prompt, {}) if row is None else row
    classes, gold_class, has_gold = group.classes, None, method.reads_gold and bool(gold)
    if has_gold:
        right = {answer for answer in set(group.answers) if kind.is_right(answer, str(gold), known)}
        classes, gold_class = one_class_for(right, group)
    facts = PromptFacts(
        reference=ReferenceVote(vote.majority_count, vote.n) if vote else None,
        stored_class=stored_class(vote.majority, group, kind, known)
        if vote and "stored_class" in method.reads
        else None,
        gold_class=gold_class,
        entropies=entropies,
        has_gold=has_gold,
        history=History(past, stored_class(past[-1].majority, group, kind, known) if past else None),
    )
    flipped = facts.history.is_flipped_by(group.votes)
    return replace(method.score(classes, facts), answers=group.answers, flipped=flipped)


def one_class_for(right: Collection[str | None], group: GroupAnswers) -> tuple[tuple[int | None, ...], int | None]:
    """The group's classes with all `right` answers in one class, and that class's number; None if none is right."""
    pairs = zip(group.answers, group.classes, strict=True)
    told = [RIGHT_CLASS if answer in right else label for answer, label in pairs]
    numbered = tuple(number_classes(told))
    return numbered, numbered[told.index(RIGHT_CLASS)] if right else None


def stored_class(label: str | None, group: GroupAnswers, kind: AnswerKind, row: Row) -> int | None:
    """The class that an answer from elsewhere has in the group; None if no rollout gave that answer."""
    if label is None:
        return None
    *within, outside = kind.classes([*group.answers, label], row)
    if outside is None:
        return None
    return next((own for own, other in zip(group.classes, within, strict=True) if other == outside), None)
