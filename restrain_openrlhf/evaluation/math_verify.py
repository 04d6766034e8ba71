"""Every response graded again by math-verify: agreement, and each difference. Our numbers stay as they are.

It cannot share an environment with latex2sympy2, which is pinned to another antlr4: it has a folder and a process of
its own, with a deadline for every response.
"""

import sys
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Self

from pydantic import BaseModel

from restrain_openrlhf.errors import ConfigError, RunError
from restrain_openrlhf.evaluation import math_verify_worker
from restrain_openrlhf.evaluation.grade import GradeRow, ResponseRow
from restrain_openrlhf.machine.worker_process import WorkerProcess

NAME = "math-verify"
# As in requirements/math-verify.txt; sympy and mpmath are the environment's.
PACKAGES = ("math-verify==0.9.0", "latex2sympy2-extended==1.11.0", "antlr4-python3-runtime==4.13.2")
HOME = Path(sys.prefix) / NAME
START_SECONDS = 60.0
DEADLINE_SECONDS = 10.0


class Verdict(BaseModel, frozen=True):
    """math-verify's reading of gold and of a response (None: nothing read), and whether it calls them equal.

    A response that takes too long, or ends the process, is wrong and `given_up`.
    """

    gold: str | None = None
    answer: str | None = None
    correct: bool = False
    given_up: bool = False


class SecondGrading(BaseModel, frozen=True):
    """What the second grader makes of all responses. Shares in [0, 1].

    `agree` of `of` verdicts are equal; `kappa` is Cohen's (None where chance alone would agree on all). `given_up`
    responses took it too long and count as wrong in its pass@1.
    """

    grader: str
    version: str
    pass_at_1: float
    agree: int
    of: int
    kappa: float | None
    given_up: int

    def __str__(self) -> str:
        kappa = "–" if self.kappa is None else f"{self.kappa:.3f}"
        return (
            f"{self.grader} {self.version}: pass@1 {self.pass_at_1:.1%}, agrees on {self.agree} of {self.of} "
            f"responses ({self.agree / self.of:.1%}, kappa {kappa}), {self.given_up} given up"
        )


class GradingDifference(BaseModel, frozen=True):
    """One response on which the two differ; `response` is its place among the problem's.

    `answer` and `second_answer` are what each took for the final answer, `second_gold` how the second one read gold.
    """

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


class MathVerify:
    """One worker, started when entered and replaced when it is killed; a context manager for one thread."""

    def __init__(self, folder: Path = HOME, deadline: float = DEADLINE_SECONDS) -> None:
        self.folder, self.deadline = folder, deadline
        self.version = ""

    def __enter__(self) -> Self:
        """Raises ConfigError where math-verify cannot be imported."""
        self._start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._worker.close()

    def grade(self, response: str, gold: str) -> Verdict:
        """One response's verdict. Total on any text."""
        try:
            return Verdict.model_validate(self._worker.ask([gold, response], self.deadline))
        except (TimeoutError, EOFError):
            self._start()
            return Verdict(given_up=True)

    def _start(self) -> None:
        self._worker = WorkerProcess([math_verify_worker.__file__, str(self.folder)])
        try:
            hello: dict[str, str] = self._worker.read(START_SECONDS)
        except (TimeoutError, EOFError):
            raise RunError(f"{NAME} in {self.folder} does not start. Install it again, into an empty folder.") from None
        if "error" in hello:
            self._worker.close()
            raise ConfigError(
                f"--second-grader {NAME}: is not installed ({hello['error']}). It needs another antlr4 than "
                f"latex2sympy2 does, so it has a folder of its own: `{sys.executable} -m pip install --no-deps "
                f"--target {self.folder} {' '.join(PACKAGES)}`."
            )
        self.version = hello["version"]


def second_grader(word: str | None) -> AbstractContextManager[MathVerify | None]:
    """`math-verify`, or `math-verify=FOLDER`, started when entered; None is none. ConfigError for another name."""
    if word is None:
        return nullcontext()
    name, equals, folder = word.partition("=")
    if name != NAME or (equals and not folder):
        raise ConfigError(f"--second-grader {word!r}: is no grader. Known: {NAME}, or {NAME}=FOLDER where it lies.")
    return MathVerify(Path(folder)) if equals else MathVerify()


class AgreementSoFar:
    """How `grader` and we judge the responses, counted problem by problem."""

    def __init__(self) -> None:
        # Responses by our verdict and the other's.
        self._counts: Counter[tuple[bool, bool]] = Counter()
        self._given_up, self._problems, self._shares = 0, 0, 0.0

    def add(self, row: ResponseRow, ours: GradeRow, grader: MathVerify) -> list[GradingDifference]:
        """Judge one problem's responses; returns those on which the two differ."""
        verdicts = [grader.grade(response, ours.gold) for response in row.responses]
        theirs = [verdict.correct for verdict in verdicts]
        self._counts.update(zip(ours.correct, theirs, strict=True))
        self._given_up += sum(verdict.given_up for verdict in verdicts)
        self._problems += 1
        self._shares += sum(theirs) / len(theirs)
        return [
            GradingDifference(
                id=ours.id,
                response=place,
                problem=row.problem,
                gold=ours.gold,
                answer=ours.answers[place],
                correct=ours.correct[place],
                **{f"second_{name}": value for name, value in verdict},
            )
            for place, verdict in enumerate(verdicts)
            if verdict.correct != ours.correct[place]
        ]

    def grading(self, grader: MathVerify) -> SecondGrading:
        """Of all that was added, at least one problem."""
        return SecondGrading(
            grader=NAME,
            version=grader.version,
            pass_at_1=self._shares / self._problems,
            agree=self._counts[True, True] + self._counts[False, False],
            of=self._counts.total(),
            kappa=cohens_kappa(self._counts),
            given_up=self._given_up,
        )


def cohens_kappa(counts: Counter[tuple[bool, bool]]) -> float | None:
    """(agreement − chance) / (1 − chance), chance from each one's share of right (Cohen, 1960).

    None where both say the same of everything: chance is 1 then. `counts` are of pairs of verdicts.
    """
    count = counts.total()
    agreement = (counts[True, True] + counts[False, False]) / count
    one, other = (counts[True, True] + counts[pair] for pair in ((True, False), (False, True)))
    chance = (one * other + (count - one) * (count - other)) / count**2
    return None if chance == 1 else (agreement - chance) / (1 - chance)
