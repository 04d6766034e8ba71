"""The scorer of a run or a service: a method with the offline pass that it may need, and what a group comes to."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, GroupAnswers, Row
from restrain_openrlhf.answers.kind import number_classes
from restrain_openrlhf.answers.residual import RESIDUAL
from restrain_openrlhf.errors import DataError, ReferencePassError
from restrain_openrlhf.method import GroupScore, Method, PromptFacts, ReferenceVote
from restrain_openrlhf.reference import Reference, ReferenceRow
from restrain_openrlhf.reference.checks import refuse_other_kind
from restrain_openrlhf.reference.prompt_rows import PromptRows
from restrain_openrlhf.scoring.wire import GroupRequest

# A class of its own, before classes are numbered.
RIGHT = -1


@dataclass(frozen=True)
class GroupScorer:
    """A method together with the offline pass it may need, and the kind of answer that votes are made of.

    `rows` are the prompts' own data, for groups that come without them.

    Raises ReferencePassError when the method needs a reference and there is none, or one of another kind of answer;
    GraderError where a package that the kind of answer needs is missing.
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

    def score(
        self,
        prompt: str,
        answers: Sequence[str | None],
        gold: str | None = None,
        entropies: tuple[float, ...] | None = None,
        row: Row | None = None,
    ) -> GroupScore:
        """The group's score; `prompt` is the text the policy saw, `answers` the final answers (None: missing).

        Pure but for the processes of the kind of answer (latex2sympy2's, programs'); call it from a thread, it may take
        seconds. Gold reaches the method only if it says that it reads gold. Raises a RestrainError where the group
        cannot be scored: another size than the method draws, a prompt that the reference lacks, no gold for a method
        that reads it, a row without what the kind of answer needs, or latex2sympy2 does not work.
        """
        timeouts, deaths = RESIDUAL.here.timed_out, RESIDUAL.here.died
        known, reference = self.row_of(prompt) if row is None else row, self._reference_row(prompt)
        with RESIDUAL.group_of_answers():
            group = GroupAnswers.of(self.kind, answers, known)
            score = score_group(self.method, group, reference, gold, prompt, entropies, self.kind, known)
            # A method that reads gold has one label for all right answers; the majority is the vote's all the same.
            labelled = GroupAnswers(score.answers, score.votes.classes)
            keys = [self.kind.key(answer, known) for answer in labelled.firsts()]
            majority = None if group.majority is None else self.kind.key(group.majority, known)
        return replace(
            score,
            keys=tuple(keys),
            majority_key=majority,
            residual_timeouts=RESIDUAL.here.timed_out - timeouts,
            residual_deaths=RESIDUAL.here.died - deaths,
        )

    def check(self, prompt: str, gold: str | None = None) -> None:
        """Raises what `score` would raise because of the prompt or the lack of gold, whatever the answers."""
        self._reference_row(prompt)
        refuse_lack_of_gold(self.method, gold, prompt)

    def row_of(self, prompt: str) -> Row:
        """The prompt's own data. Raises DataError where `rows` are given and have no row for it."""
        return self.rows.find(prompt) or self.kind.row(prompt, {})

    def _reference_row(self, prompt: str) -> ReferenceRow | None:
        if self.reference is None:
            return None
        return self.reference.row(prompt) if self.method.needs_reference else self.reference.by_prompt(prompt)


def score_whole_group(scorer: GroupScorer, group: GroupRequest) -> GroupScore:
    """The score of a group of texts, as `GroupScorer.score`: of POST /v1/score and of the executor in process."""
    row = scorer.row_of(group.prompt) if group.row is None else group.row
    answers = [scorer.kind.voted_answer(each.text, not each.finished, row) for each in group.responses]
    return scorer.score(group.prompt, answers, group.gold, group.entropies, row)


def score_group(
    method: Method,
    group: GroupAnswers,
    vote: ReferenceRow | None,
    gold: str | None,
    prompt: str,
    entropies: tuple[float, ...] | None = None,
    kind: AnswerKind = MATHEMATICS,
    row: Row | None = None,
) -> GroupScore:
    """What the method makes of the group and of `vote`, the frozen model's; `row` is the prompt's own data.

    A method that reads gold has one class for all right answers, and what is right is evaluation's rule: votes of
    another class may be right, too (docs/decisions/0004-one-grader.md). Raises DataError where it reads gold and there
    is none.
    """
    refuse_lack_of_gold(method, gold, prompt)
    known = kind.row(prompt, {}) if row is None else row
    classes, gold_class = group.classes, None
    if method.reads_gold:
        right = {answer for answer in set(group.answers) if kind.is_right(answer, str(gold), known)}
        classes, gold_class = one_class_for(right, group)
    facts = PromptFacts(
        reference=ReferenceVote(vote.majority_count, vote.n) if vote else None,
        stored_class=stored_class(vote.majority, group, kind, known)
        if vote and "stored_class" in method.reads
        else None,
        gold_class=gold_class,
        entropies=entropies,
    )
    return replace(method.score(classes, facts), answers=group.answers)


def refuse_lack_of_gold(method: Method, gold: str | None, prompt: str) -> None:
    """Raises DataError where the method reads gold and there is none."""
    if method.reads_gold and not gold:
        raise DataError(
            f"The method {method.name!r} learns from gold answers, but the prompt {prompt[:80]!r} has none. Give the "
            "column that holds them, or choose a label-free method."
        )


def one_class_for(right: Collection[str | None], group: GroupAnswers) -> tuple[tuple[int | None, ...], int | None]:
    """Classes in which all `right` answers are one, and the number of that class; None where no answer is right."""
    pairs = zip(group.answers, group.classes, strict=True)
    told = [RIGHT if answer in right else label for answer, label in pairs]
    numbered = tuple(number_classes(told))
    return numbered, numbered[told.index(RIGHT)] if right else None


def stored_class(label: str | None, group: GroupAnswers, kind: AnswerKind, row: Row) -> int | None:
    """The class, within the group, of an answer from outside it; None if no rollout gave it."""
    if label is None:
        return None
    *within, outside = kind.classes([*group.answers, label], row)
    if outside is None:
        return None
    return next((own for own, other in zip(group.classes, within, strict=True) if other == outside), None)
