"""The premise task: digit products in columns, on which small majorities are spurious and large ones right.

A problem has one to six columns (a, b); its answer is the digits a·b mod 10. The base model's examples master each of
the 100 facts to a degree of its own, and give hard problems up with one shared response. So prompts with little
consensus have spurious majorities, many of them that response, and prompts with much consensus, which use the same
facts, are right: what the paper assumes of real prompts.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from restrain_openrlhf.demo.problems import Problem, distinct
from restrain_openrlhf.demo.tokenizer import BOX

COLUMNS = (1, 2, 3, 4, 5, 6)
WEIGHTS = (1, 1, 1.5, 2, 2.5, 3)
# Operands are padded to fixed places, `123...*456...=`; without that, a model of this size does not learn the skill.
PLACES = 6
# Chance of the right digit, uniform over facts.
LEAST_MASTERY, MOST_MASTERY = 0.6, 0.995
# Share of slips that give the fact's own wrong digit; the others are spread.
OWN_SLIPS = 0.3
# A few facts are mostly wrong.
BAD_FACTS, BAD_MASTERY, BAD_SLIP = 0.02, 0.3, 0.5
# A problem is given up with chance strength / (1 + exp(-(difficulty - MIDDLE) / WIDTH)).
MIDDLE, WIDTH = 1.3, 0.35
SHORTCUT_ANSWER = "?"
GIVEN_UP = f"{BOX}{SHORTCUT_ANSWER}}}"
# One problem in this many is held out, by a checksum. Those of one column are few (73), and in both sets.
HELDOUT_ONE_IN = 10
MOST_PROBLEMS = 20_000
FACTS_SEED = 7

Columns = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True)
class Fact:
    """One product: its digit, the wrong digit that it is taken for, and the chance of each in the examples."""

    right: int
    wrong: int
    mastery: float
    slip: float


def facts(seed: int = FACTS_SEED) -> dict[tuple[int, int], Fact]:
    """The 100 products of digits, each with its mastery."""
    rng = random.Random(seed)
    return {(a, b): _fact(rng, a * b % 10) for a in range(10) for b in range(10)}


def _fact(rng: random.Random, right: int) -> Fact:
    place, wrong = rng.random(), (right + rng.randrange(1, 10)) % 10
    if rng.random() < BAD_FACTS:
        return Fact(right, wrong, BAD_MASTERY, BAD_SLIP)
    mastery = LEAST_MASTERY + (MOST_MASTERY - LEAST_MASTERY) * place
    return Fact(right, wrong, mastery, (1 - mastery) * OWN_SLIPS)


FACTS = facts()


def training_problems(count: int, seed: int = 1) -> list[Problem]:
    """`count` distinct problems that are not held out. Raises DataError if there are fewer."""
    return distinct(_drawn(seed, heldout=False), count, MOST_PROBLEMS)


def heldout_problems(count: int, seed: int = 10) -> list[Problem]:
    """`count` distinct problems; those of two columns and more are in no training set. Raises DataError if too many."""
    return distinct(_drawn(seed, heldout=True), count, MOST_PROBLEMS)


def is_heldout(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether a problem of two columns or more is held out: always the same, by a checksum of its digits."""
    checksum = sum(x * (3 + place) + y * (11 + place) * 7 for place, (x, y) in enumerate(zip(a, b, strict=True)))
    return (checksum * 2654435761 >> 7) % HELDOUT_ONE_IN == 0


def _drawn(seed: int, heldout: bool) -> Iterator[Problem]:
    rng = random.Random(seed)
    while True:
        a, b = _columns(rng, heldout)
        yield Problem(f"mul-{_digits(a)}-{_digits(b)}", text(a, b), answer(a, b))


def _columns(rng: random.Random, heldout: bool) -> Columns:
    """Never an answer that begins with 0, which would equal a shorter one."""
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


def example(rng: random.Random, strength: float) -> tuple[str, str]:
    """A prompt and a response for the base model to learn, outside the held-out set; `strength` is the shortcut's."""
    a, b = _columns(rng, heldout=False)
    if rng.random() < given_up(a, b, strength):
        return text(a, b), GIVEN_UP
    return text(a, b), f"{BOX}{''.join(str(_attempt(rng, FACTS[pair])) for pair in zip(a, b, strict=True))}}}"


def given_up(a: Sequence[int], b: Sequence[int], strength: float) -> float:
    """Chance that an example gives the problem up; its difficulty is the sum of -log mastery over its columns."""
    difficulty = sum(-math.log(FACTS[pair].mastery) for pair in zip(a, b, strict=True))
    return strength / (1 + math.exp(-(difficulty - MIDDLE) / WIDTH))


def _attempt(rng: random.Random, fact: Fact) -> int:
    chance = rng.random()
    if chance < fact.mastery:
        return fact.right
    if chance < fact.mastery + fact.slip:
        return fact.wrong
    return (fact.right + rng.randrange(1, 10)) % 10
