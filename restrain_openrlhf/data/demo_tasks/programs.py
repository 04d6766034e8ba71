"""The programs task: writing a Python function for given steps. Answers agree if they return the same results."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from restrain_openrlhf.data.demo_tasks.problems import COUNTS, WEIGHTS, DemoTask, in_places, is_heldout
from restrain_openrlhf.data.problems import Problem


@dataclass(frozen=True)
class ProgramStep:
    """What a step makes of an integer, and the expressions for it. Different expressions make equal programs."""

    result: Callable[[int], int]
    written: tuple[str, ...]


STEPS = {
    "+2": ProgramStep(lambda x: x + 2, ("x+2", "2+x")),
    "+5": ProgramStep(lambda x: x + 5, ("x+5", "5+x")),
    "+8": ProgramStep(lambda x: x + 8, ("x+8", "8+x")),
    "-3": ProgramStep(lambda x: x - 3, ("x-3", "-3+x")),
    "*2": ProgramStep(lambda x: x * 2, ("x*2", "2*x", "x+x")),
    "*3": ProgramStep(lambda x: x * 3, ("x*3", "3*x")),
    "^2": ProgramStep(lambda x: x * x, ("x*x", "x**2")),
    "neg": ProgramStep(lambda x: -x, ("-x", "0-x")),
    "/2": ProgramStep(lambda x: x // 2, ("x//2",)),
    "%7": ProgramStep(lambda x: x % 7, ("x%7",)),
    "max4": ProgramStep(lambda x: max(x, 4), ("max(x,4)", "max(4,x)")),
    "min9": ProgramStep(lambda x: min(x, 9), ("min(x,9)", "min(9,x)")),
}
NAMES = tuple(STEPS)
WIDTH = 4
# The inputs of the gold tests. For votes, the kind of answer chooses its own inputs.
TESTED = (-7, -1, 0, 1, 3, 4, 10, 25)
HELDOUT_ONE_IN = 6
# Fewer than there are, so that drawing distinct problems stays quick.
MOST_PROBLEMS, MOST_HELDOUT = 1_200, 240


def _draw(rng: random.Random, heldout: bool) -> Problem:
    steps = drawn_steps(rng, heldout)
    row = {"entry_point": "f", "examples": [f"f({value})" for value in TESTED[:3]]}
    return Problem(id=",".join(steps), problem=text(steps), answer=tests(steps), row=row)


def drawn_steps(rng: random.Random, heldout: bool) -> list[str]:
    (count,) = rng.choices(COUNTS, WEIGHTS)
    while True:
        steps = rng.choices(NAMES, k=count)
        if count == 1 or is_heldout(",".join(steps), HELDOUT_ONE_IN) == heldout:
            return steps


def text(steps: Sequence[str]) -> str:
    """The problem as the model reads it: `*2..max4....=`."""
    return in_places(steps, WIDTH)


def program(written: Sequence[str]) -> str:
    """The function that applies these expressions one after the other."""
    return "".join(["def f(x):\n", *(f" x={each}\n" for each in written), " return x"])


def tests(steps: Sequence[str]) -> str:
    """The gold answer: assertions of what the right function returns."""
    return "\n".join(f"assert f({value}) == {_result(steps, value)}" for value in TESTED)


def _result(steps: Sequence[str], value: int) -> int:
    for step in steps:
        value = STEPS[step].result(value)
    return value


PROGRAMS = DemoTask("programs", "Python functions", _draw, MOST_PROBLEMS, MOST_HELDOUT, "cpu/demo_programs")
