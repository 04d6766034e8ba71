"""Responses right and wrong: files of them, their grades by gold, pass@k and maj@k with intervals, reliability."""

from collections.abc import Iterator, Sequence
from math import comb
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from pydantic import BaseModel, BeforeValidator, StrictFloat, StrictInt, model_validator

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, GroupAnswers, Row
from restrain_openrlhf.data.gold import finite_answer
from restrain_openrlhf.data.jsonl import Identified, identified, validated
from restrain_openrlhf.data.prompt_reader import PromptReader, is_chat, text_of
from restrain_openrlhf.data.tables import placed_rows
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.records.metrics import wilson_interval
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


class ResponseRow(SampledRow, frozen=True, extra="forbid"):
    """n responses to one problem, with their lengths in `tokens`, and whether each hit the length limit.

    Files for `restrain score` and `restrain premise` may have the same keys. Gold is not among them.
    """

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


class RolloutsRow(Identified, frozen=True, extra="allow"):
    """A row of a file of rollouts: a prompt, its responses, and other keys, some of which the kind of answer reads.

    `truncated` says whether each response hit the length limit; without it none did. `entropies` has the mean token
    entropy of each response that is trained on, for methods that reshape advantages by it.
    """

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
    """All rows with their places. A problem that is a chat is its text.

    Raises DataError for a damaged row, a row without responses, repeated ids, NULs, and an empty file.
    """
    place, reader = "", PromptReader("a column `problem`", "problem")
    chats = ((place, row, is_chat(row.get("problem"))) for place, row in placed_rows(path))
    read = (
        (place, {**row, "problem": text_of(reader.read(f"{path}, {place}", row))} if chat else row)
        for place, row, chat in chats
    )
    rows = ((place, validated(path, place, row, RolloutsRow)) for place, row in read)
    for place, row in identified(path, rows):
        if not row.responses:
            raise DataError(f"{path}, {place}: responses is empty. Remove the row.")
        yield place, row
    if not place:
        raise DataError(f"{path}: has no rows. Give a file of rollouts.")


def pass_at_k(n: int, right: int, k: int) -> float:
    """Unbiased estimate of the chance that one of k ≤ n responses is right, 1 − C(n − c, k) / C(n, k).

    `right` is c, the number of right responses among n (Chen et al., 2021).
    """
    return 1.0 - comb(n - right, k) / comb(n, k)


def mean_pass_at_k(n: int, right: Sequence[int], k: int) -> float:
    """The mean of pass@k over problems with n responses each; `right` has each problem's number of right responses."""
    return float(np.mean([pass_at_k(n, count, k) for count in right]))


def majority_right(group: GroupAnswers, correct: Sequence[bool]) -> bool:
    """Whether the majority's representative was graded right; False if no response has an answer."""
    majority = group.majority
    return majority is not None and correct[group.answers.index(majority)]


def interval_over_problems(shares: Sequence[float]) -> tuple[float, float]:
    """95 % bounds of the share of right responses if the problems are a sample; `shares` has one share per problem.

    The variance s² / m of the shares, with m problems, includes the sampling of problems and that of responses. The
    bounds are Wilson's for the number of independent draws that would have this variance, which surveys call the
    effective sample size (Korn and Graubard, 1998); where the variance is 0, for m draws.
    """
    share, of = float(np.mean(shares)), len(shares)
    spread = float(np.var(shares, ddof=1)) if len(set(shares)) > 1 else 0.0
    draws = share * (1 - share) / (spread / of) if spread else of
    return wilson_interval(share * draws, draws)


def powers_up_to(n: int) -> list[int]:
    """1, 2, 4, … and n: the k for which pass@k is reported."""
    return sorted({2**power for power in range(n.bit_length())} | {n})


class SizeRow(BaseModel, frozen=True):
    """The problems whose majority has `size` of n rollouts. Shares are in [0, 1], bounds are at 95 % (Wilson).

    `weight` is the number of problems that these stand for, and `draws` Kish's effective number of them: both are
    `problems` where every problem counts once. `majority_accuracy` is the share of problems with a right majority, and
    `mean_accuracy` that of right rollouts.
    """

    size: int
    problems: int
    weight: float
    draws: float
    majority_accuracy: float
    majority_low: float
    majority_high: float
    mean_accuracy: float


class ReliabilitySoFar:
    """Counts, problem by problem, how reliable majorities of each size are, where every problem has n rollouts."""

    def __init__(self, n: int) -> None:
        # For each size of the majority: problems, and the sums of weights, of their squares, of those of right
        # majorities, and of right rollouts.
        self._counts = np.zeros((n + 1, 5))

    def add(self, row: GradeRow, weight: float = 1.0) -> None:
        """Count a problem that stands for `weight` problems."""
        right = majority_right(row.group, row.correct), sum(row.correct)
        self._counts[row.group.votes.majority_count] += 1, weight, weight**2, *(weight * each for each in right)

    def rows(self) -> list[SizeRow]:
        """One row per size of a majority that occurs, ascending."""
        return [self._row(size, *counts) for size, counts in enumerate(self._counts.tolist()) if counts[0]]

    def _row(self, size: int, problems: float, weight: float, squares: float, right: float, rollouts: float) -> SizeRow:
        draws = weight**2 / squares
        low, high = wilson_interval(right / weight * draws, draws)
        return SizeRow(
            size=size,
            problems=int(problems),
            weight=weight,
            draws=draws,
            majority_accuracy=right / weight,
            majority_low=low,
            majority_high=high,
            mean_accuracy=rollouts / (weight * (len(self._counts) - 1)),
        )
