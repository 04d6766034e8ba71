"""The addition task: three-digit additions with written-out digits, on which most majorities are right."""

import random
import zlib
from collections.abc import Callable, Iterator

from restrain_openrlhf.demo.problems import Problem, distinct

DIGITS = 3
# One in this many additions is held out, by a hash of its text, so that both sets have all digits.
HELDOUT_ONE_IN = 10
TEN = 10
# Below half of the held-out additions, so that drawing distinct problems stays quick.
MOST_PROBLEMS = 40_000
# Probability that a carry is dropped in the base model's examples.
FORGOTTEN_CARRIES = 0.3
# Share of those examples with one digit less, which teach the same skill.
SHORTER = 0.5


def training_problems(count: int, seed: int = 1) -> list[Problem]:
    """`count` distinct problems that are not held out. Raises DataError if there are fewer."""
    return distinct(_drawn(seed, heldout=False), count, MOST_PROBLEMS)


def heldout_problems(count: int, seed: int = 2) -> list[Problem]:
    """`count` distinct problems that are in no training set. Raises DataError if there are fewer."""
    return distinct(_drawn(seed, heldout=True), count, MOST_PROBLEMS)


def is_heldout(first: int, second: int) -> bool:
    """Whether an addition is held out: always the same, and the same for both orders of its operands."""
    return zlib.crc32(f"{min(first, second)}+{max(first, second)}".encode()) % HELDOUT_ONE_IN == 0


def _drawn(seed: int, heldout: bool) -> Iterator[Problem]:
    for first, second in _operands(random.Random(seed)):
        if is_heldout(first, second) == heldout:
            yield Problem(f"add-{first}-{second}", f"{first}+{second}=", str(first + second))


def _operands(rng: random.Random) -> Iterator[tuple[int, int]]:
    low, high = 10 ** (DIGITS - 1), 10**DIGITS
    while True:
        yield rng.randrange(low, high), rng.randrange(low, high)


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
    return f"{digits}\\boxed{{{digits[::-1]}}}"


def example(rng: random.Random) -> tuple[str, str]:
    """A prompt and a response for the base model to learn: each carry is dropped by itself, so that errors differ."""
    return _example(rng, lambda: FORGOTTEN_CARRIES)


def careless_example(rng: random.Random) -> tuple[str, str]:
    """The same, but half of the examples lose every carry, so that wrong answers agree with each other."""
    return _example(rng, lambda: float(rng.random() < CARELESS))


# Share of the careless model's examples that lose every carry.
CARELESS = 0.5


def _example(rng: random.Random, chance_of: Callable[[], float]) -> tuple[str, str]:
    digits = DIGITS - int(rng.random() < SHORTER)
    while True:
        first, second = (rng.randrange(10 ** (digits - 1), 10**digits) for _ in range(2))
        if not is_heldout(first, second):
            break
    chance = chance_of()
    return f"{first}+{second}=", solution(first, second, forgets=lambda: rng.random() < chance)
