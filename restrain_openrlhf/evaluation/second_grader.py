"""Every response graded again by another grader: agreement, and each difference. Our numbers stay as they are."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.evaluation.grade import GradeRow
from restrain_openrlhf.evaluation.math_verify_process import NAME, MathVerify, Verdict


class SecondGrading(BaseModel):
    """What the second grader makes of all responses. Shares in [0, 1].

    `agree` of `of` verdicts are equal; `kappa` is Cohen's (None where chance alone would agree on all). `given_up`
    responses took it too long and count as wrong in its pass@1.
    """

    model_config = ConfigDict(frozen=True)

    grader: str
    version: str
    pass_at_1: float
    agree: int
    of: int
    kappa: float | None
    given_up: int


class GradingDifference(BaseModel):
    """One response on which the two differ; `response` is its place among the problem's.

    `answer` and `second_answer` are what each took for the final answer, `second_gold` how the second one read gold.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    response: int
    problem: str
    gold: str
    answer: str | None
    correct: bool
    second_gold: str | None
    second_answer: str | None
    second_correct: bool
    second_given_up: bool


@dataclass(frozen=True)
class Asked:
    """One problem with its responses and our grades of them."""

    problem: str
    responses: Sequence[str]
    grades: GradeRow


def grade_again(rows: Sequence[Asked], grader: MathVerify) -> tuple[SecondGrading, list[GradingDifference]]:
    """All responses by `grader`; every problem has some."""
    verdicts = [[grader.grade(response, row.grades.gold) for response in row.responses] for row in rows]
    pairs = [
        (mine, verdict)
        for row, of_row in zip(rows, verdicts, strict=True)
        for mine, verdict in zip(row.grades.correct, of_row, strict=True)
    ]
    ours, theirs = [mine for mine, _ in pairs], [verdict.correct for _, verdict in pairs]
    grading = SecondGrading(
        grader=NAME,
        version=grader.version,
        pass_at_1=sum(sum(verdict.correct for verdict in of_row) / len(of_row) for of_row in verdicts) / len(rows),
        agree=sum(mine == second for mine, second in zip(ours, theirs, strict=True)),
        of=len(pairs),
        kappa=cohens_kappa(ours, theirs),
        given_up=sum(verdict.given_up for _, verdict in pairs),
    )
    return grading, [each for row, of_row in zip(rows, verdicts, strict=True) for each in _differences(row, of_row)]


def cohens_kappa(one: Sequence[bool], other: Sequence[bool]) -> float | None:
    """(agreement − chance) / (1 − chance), chance from each one's share of right (Cohen, 1960).

    None where both say the same of everything: chance is 1 then.
    """
    count = len(one)
    agreement = sum(a == b for a, b in zip(one, other, strict=True)) / count
    chance = (sum(one) * sum(other) + (count - sum(one)) * (count - sum(other))) / count**2
    return None if chance == 1 else (agreement - chance) / (1 - chance)


def _differences(row: Asked, verdicts: Sequence[Verdict]) -> list[GradingDifference]:
    return [
        GradingDifference(
            id=row.grades.id,
            response=place,
            problem=row.problem,
            gold=row.grades.gold,
            answer=row.grades.answers[place],
            correct=row.grades.correct[place],
            second_gold=verdict.gold,
            second_answer=verdict.answer,
            second_correct=verdict.correct,
            second_given_up=verdict.given_up,
        )
        for place, verdict in enumerate(verdicts)
        if verdict.correct != row.grades.correct[place]
    ]
