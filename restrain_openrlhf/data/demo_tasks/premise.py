"""The premise task: digit products in columns, on which small majorities are spurious and large ones right.

A problem has one to six columns (a, b), and its answer is the digits a·b mod 10. The examples on which the base model
was trained master each of the 100 facts to a different degree, and give up on hard problems, always with the same
response. So majorities of prompts with little consensus are spurious, and often that response, while majorities of
prompts with much consensus, which use the same facts, are right. The paper assumes this of real prompts.
"""

import random
from collections.abc import Sequence

from restrain_openrlhf.data.demo_tasks.problems import DemoTask
from restrain_openrlhf.data.problems import Problem

COLUMNS = (1, 2, 3, 4, 5, 6)
WEIGHTS = (1, 1, 1.5, 2, 2.5, 3)
# Operands are padded to fixed places, `123...*456...=`. Otherwise a model of this size does not learn the skill.
PLACES = 6
# One of so many problems is held out, by a checksum. The 73 problems of one column are in both sets.
HELDOUT_ONE_IN = 10
MOST_PROBLEMS = 20_000

Columns = tuple[Sequence[int], Sequence[int]]


def is_heldout(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether a problem of two columns or more is held out, by a checksum of its digits."""
    checksum = sum(x * (3 + place) + y * (11 + place) * 7 for place, (x, y) in enumerate(zip(a, b, strict=True)))
    return (checksum * 2654435761 >> 7) % HELDOUT_ONE_IN == 0


def _draw(rng: random.Random, heldout: bool) -> Problem:
    a, b = columns(rng, heldout)
    return Problem(id=f"mul-{_digits(a)}-{_digits(b)}", problem=text(a, b), answer=answer(a, b))


def columns(rng: random.Random, heldout: bool) -> Columns:
    """The operands of a problem. Its answer never begins with 0, because it would equal a shorter answer."""
    (count,) = rng.choices(COLUMNS, WEIGHTS)
    while True:
        a, b = ([rng.randrange(10) for _ in range(count)] for _ in range(2))
        if a[0] * b[0] % 10 and (count == 1 or is_heldout(a, b) == heldout):
            return a, b


def text(a: Sequence[int], b: Sequence[int]) -> str:
    """The problem as the model reads it."""
    return f"{_digits(a).ljust(PLACES, '.')}*{_digits(b).ljust(PLACES, '.')}="


def answer(a: Sequence[int], b: Sequence[int]) -> str:
    """Gold: the last digit of each column's product."""
    return "".join(str(x * y % 10) for x, y in zip(a, b, strict=True))


def _digits(column: Sequence[int]) -> str:
    return "".join(map(str, column))


PREMISE = DemoTask("premise", "digit products", _draw, MOST_PROBLEMS, MOST_PROBLEMS, "cpu/demo", steps=40)
