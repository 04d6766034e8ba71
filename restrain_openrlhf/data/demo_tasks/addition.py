"""The addition task: three-digit additions with written-out digits, on which most majorities are right."""

import random
import zlib

from restrain_openrlhf.data.demo_tasks.problems import DemoTask
from restrain_openrlhf.data.problems import Problem

DIGITS = 3
# One of so many additions is held out, by a hash of its text, so that both sets have all digits.
HELDOUT_ONE_IN = 10
# Below half of the held-out additions, so that drawing distinct problems stays quick.
MOST_PROBLEMS = 40_000


def is_heldout(first: int, second: int) -> bool:
    """Whether an addition is held out. This does not depend on the order of its operands."""
    return zlib.crc32(f"{min(first, second)}+{max(first, second)}".encode()) % HELDOUT_ONE_IN == 0


def _draw(rng: random.Random, heldout: bool) -> Problem:
    low, high = 10 ** (DIGITS - 1), 10**DIGITS
    while True:
        first, second = rng.randrange(low, high), rng.randrange(low, high)
        if is_heldout(first, second) == heldout:
            return Problem(id=f"add-{first}-{second}", problem=f"{first}+{second}=", answer=str(first + second))


ADDITION = DemoTask(
    "addition",
    "additions",
    _draw,
    MOST_PROBLEMS,
    MOST_PROBLEMS,
    "cpu/demo_addition",
    heldout_seed=2,
    methods=("restrain",),
    episode=None,
)
training_problems, heldout_problems = ADDITION.training_problems, ADDITION.heldout_problems
