"""The addition task: three-digit additions with written-out digits, on which most majorities are right."""

import random
import zlib
from collections.abc import Iterator

from restrain_openrlhf.data.demo_tasks.problems import distinct
from restrain_openrlhf.data.problems import Problem

DIGITS = 3
# One in this many additions is held out, by a hash of its text, so that both sets have all digits.
HELDOUT_ONE_IN = 10
# Below half of the held-out additions, so that drawing distinct problems stays quick.
MOST_PROBLEMS = 40_000


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
    rng, low, high = random.Random(seed), 10 ** (DIGITS - 1), 10**DIGITS
    while True:
        first, second = rng.randrange(low, high), rng.randrange(low, high)
        if is_heldout(first, second) == heldout:
            yield Problem(id=f"add-{first}-{second}", problem=f"{first}+{second}=", answer=str(first + second))
