"""What the base models were taught: examples of the demo's tasks with the errors that each model is to make."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from restrain_openrlhf.data.demo_tasks import premise, tasks
from tools.tokenizer import BOX

TEN = 10
# Probability that a carry is dropped, and share of the examples with one digit less, which teach the same skill.
FORGOTTEN_CARRIES, SHORTER = 0.3, 0.5
# Share of the careless model's examples that lose every carry.
CARELESS = 0.5

# The premise task: the base model masters each of the 100 facts to a degree of its own, and gives hard problems up with
# one shared response.
FACTS_SEED = 7
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


def solution(first: int, second: int, forgets: Callable[[], bool] = lambda: False) -> str:
    """Digits from the last to the first, then the boxed answer; `forgets` decides for each carry whether it is dropped.

    There is always one digit more than the operands have, so that the length says nothing about the sum.
    """
    digits, carry = "", 0
    for a, b in zip(reversed(str(first)), reversed(str(second)), strict=True):
        total = int(a) + int(b) + carry
        digits += str(total % 10)
        carry = 1 if total >= TEN and not forgets() else 0
    digits += str(carry)
    return f"{digits}{BOX}{digits[::-1]}}}"


def sum_example(rng: random.Random) -> tuple[str, str]:
    """A prompt and a response: each carry is dropped by itself, so that errors differ."""
    return _sum_example(rng, lambda: FORGOTTEN_CARRIES)


def careless_example(rng: random.Random) -> tuple[str, str]:
    """The same, but half of the examples lose every carry, so that wrong answers agree with each other."""
    return _sum_example(rng, lambda: float(rng.random() < CARELESS))


def _sum_example(rng: random.Random, chance_of: Callable[[], float]) -> tuple[str, str]:
    digits = tasks.DIGITS - int(rng.random() < SHORTER)
    while True:
        first, second = (rng.randrange(10 ** (digits - 1), 10**digits) for _ in range(2))
        if not tasks.is_heldout_addition(first, second):
            break
    chance = chance_of()
    return f"{first}+{second}=", solution(first, second, forgets=lambda: rng.random() < chance)


@dataclass(frozen=True)
class Fact:
    """One product: its digit, the wrong digit that it is taken for, and the chance of each in the examples."""

    right: int
    wrong: int
    mastery: float
    slip: float


def _fact(rng: random.Random, right: int) -> Fact:
    place, wrong = rng.random(), (right + rng.randrange(1, 10)) % 10
    if rng.random() < BAD_FACTS:
        return Fact(right, wrong, BAD_MASTERY, BAD_SLIP)
    mastery = LEAST_MASTERY + (MOST_MASTERY - LEAST_MASTERY) * place
    return Fact(right, wrong, mastery, (1 - mastery) * OWN_SLIPS)


def _facts(rng: random.Random) -> dict[tuple[int, int], Fact]:
    return {(a, b): _fact(rng, a * b % 10) for a in range(10) for b in range(10)}


# The 100 products of digits, each with its mastery.
FACTS = _facts(random.Random(FACTS_SEED))


def product_example(rng: random.Random, strength: float) -> tuple[str, str]:
    """A prompt and a response, outside the held-out set; `strength` is the shortcut's."""
    a, b = premise.columns(rng, heldout=False)
    if rng.random() < given_up(a, b, strength):
        return premise.text(a, b), GIVEN_UP
    digits = "".join(str(_attempt(rng, FACTS[pair])) for pair in zip(a, b, strict=True))
    return premise.text(a, b), f"{BOX}{digits}}}"


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
