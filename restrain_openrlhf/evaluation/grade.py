"""Reads files of responses and of rollouts, and grades all responses to a problem."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, StrictFloat, StrictInt, model_validator

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, GroupAnswers, Row
from restrain_openrlhf.data.gold import finite_answer
from restrain_openrlhf.data.jsonl import Identified, identified, validated
from restrain_openrlhf.data.tables import placed_rows, suffix_of
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.reference import ReferenceRow
from restrain_openrlhf.reference.offline_engine import Rollout
from restrain_openrlhf.reference.prompts import Prompt
from restrain_openrlhf.reference.sampling_pass import SampledRow


class GradeRow(BaseModel, frozen=True):
    """The grades of n responses to one problem, in order; `classes` are those of the vote."""

    id: str
    gold: str
    answers: tuple[str | None, ...]
    classes: tuple[int | None, ...]
    correct: tuple[bool, ...]

    @property
    def group(self) -> GroupAnswers:
        return GroupAnswers(self.answers, self.classes)


def grade_answers(
    problem_id: str,
    answers: Sequence[str | None],
    gold: str,
    kind: AnswerKind = MATHEMATICS,
    row: Row | None = None,
    classes: Sequence[int | None] | None = None,
) -> GradeRow:
    """Grade all answers to one problem (None: missing, which is wrong), each distinct answer once.

    `row` is the problem's own data. `classes` may be given where they are known, so that they are not computed.
    """
    own = {} if row is None else row
    verdicts = {answer: kind.is_right(answer, gold, own) for answer in set(answers)}
    correct = tuple(verdicts[answer] for answer in answers)
    labels = kind.classes(answers, own) if classes is None else classes
    return GradeRow(id=problem_id, gold=gold, answers=tuple(answers), classes=tuple(labels), correct=correct)


def grade_vote(vote: ReferenceRow, gold: str, kind: AnswerKind = MATHEMATICS) -> GradeRow:
    return grade_answers(str(vote.id), vote.answers, gold, kind, vote.row, vote.classes)


class ResponseRow(SampledRow):
    """n responses to one problem, with their lengths in `tokens`, and whether each hit the length limit.

    Files for `restrain score` and `restrain premise` may have the same keys. Gold is not among them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    problem: str
    prompt: str
    responses: tuple[str, ...]
    tokens: tuple[int, ...]
    truncated: tuple[bool, ...]

    @classmethod
    def of(cls, prompt: Prompt, rollouts: Sequence[Rollout]) -> Self:
        return cls(
            id=str(prompt.id),
            problem=prompt.problem,
            prompt=prompt.text,
            responses=tuple(rollout.text for rollout in rollouts),
            tokens=tuple(rollout.tokens for rollout in rollouts),
            truncated=tuple(rollout.truncated for rollout in rollouts),
        )

    @classmethod
    def key_of(cls, prompt: Prompt) -> str:
        return str(prompt.id)

    @property
    def key(self) -> str:
        return self.id


class RolloutsRow(Identified):
    """A row of a file of rollouts: a prompt, its responses, and other keys, some of which the kind of answer reads.

    `truncated` says whether each response hit the length limit; without it none did. `entropies` has the mean token
    entropy of each response that is trained on, for methods that reshape advantages by it.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    problem: str
    responses: tuple[str, ...]
    answer: Annotated[str | StrictInt | StrictFloat | None, BeforeValidator(finite_answer)] = None
    entropies: tuple[float, ...] | None = None
    truncated: tuple[bool, ...] = ()

    @model_validator(mode="after")
    def _one_mark_per_response(self) -> Self:
        if len(self.truncated) not in (0, len(self.responses)):
            raise ValueError(f"truncated has {len(self.truncated)} entries for {len(self.responses)} responses")
        return self

    def rollouts(self) -> list[Rollout]:
        """The responses as rollouts of unknown length."""
        cut = self.truncated or (False,) * len(self.responses)
        return [Rollout(text, 0, is_cut) for text, is_cut in zip(self.responses, cut, strict=True)]

    def row(self, kind: AnswerKind) -> Row:
        """What the kind of answer reads of the row, including gold's columns, which votes do not read."""
        return kind.graded_row(self.problem, self.model_extra or {})


def placed_rollouts(path: Path) -> Iterator[tuple[str, RolloutsRow]]:
    """The rows with their places.

    In a CSV file, neighbouring rows of one problem, with a response each, form a group.
    """
    if suffix_of(path) in (".csv", ".tsv"):
        return identified(path, _groups_of_csv(path))
    return identified(path, ((place, validated(path, place, row, RolloutsRow)) for place, row in placed_rows(path)))


def _groups_of_csv(path: Path) -> Iterator[tuple[str, RolloutsRow]]:
    """The groups of a CSV file, numbered from 1. Their ids are these numbers, unless there is a column `id`."""

    def cell(name: str, row: Mapping[str, object]) -> object:
        if name not in row:
            raise DataError(
                f"{path}: has no column {name!r} (its columns are {', '.join(row)}). Rename the column to that."
            )
        return row[name]

    seen: dict[object, int] = {}
    groups = groupby((row for _, row in placed_rows(path)), partial(cell, "problem"))
    for number, (problem, rows) in enumerate(groups, start=1):
        if (before := seen.setdefault(problem, number)) != number:
            raise DataError(
                f"{path}: the problem {str(problem)[:60]!r} has rows in two places (groups {before} and {number}), and "
                "they would be two votes. Sort the file by its problems."
            )
        every = list(rows)
        known = {name: text for name, text in every[0].items() if name != "response" and text}
        known |= {"truncated": [row["truncated"] for row in every]} if "truncated" in every[0] else {}
        responses = [cell("response", row) for row in every]
        row = {"id": number, **known, "problem": problem, "responses": responses}
        _refuse_two_answers(f"{path}, group {number}", every)
        yield f"group {number}", validated(path, f"group {number}", row, RolloutsRow)


def _refuse_two_answers(where: str, rows: Sequence[Mapping[str, object]]) -> None:
    if len(answers := list(dict.fromkeys(row.get("answer") for row in rows))) > 1:
        raise DataError(
            f"{where}: its rows have different answers, {answers[0]!r} and {answers[1]!r}. `answer` is the "
            "gold answer to the problem: write the same one in each row."
        )


def each_rollouts(path: Path) -> Iterator[RolloutsRow]:
    """All rows. Raises DataError for a damaged row, a row without responses, repeated ids, NULs, and an empty file."""
    place = ""
    for place, row in placed_rollouts(path):
        if not row.responses:
            raise DataError(f"{path}, {place}: responses is empty. Remove the row.")
        yield row
    if not place:
        raise DataError(f"{path}: has no rows. Give a file of rollouts.")
