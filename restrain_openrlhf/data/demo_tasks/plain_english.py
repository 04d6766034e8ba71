"""The tasks of a pretrained model, asked in plain English: capitals, with text for answers, and small arithmetic."""

import csv
import operator
import random
from functools import partial
from pathlib import Path

from restrain_openrlhf.data.demo_tasks.problems import DemoTask, is_heldout
from restrain_openrlhf.data.problems import Problem

# Countries whose capital has one common spelling, so that gold needs no second form: 58 to train on, 48 held out.
with Path(__file__).with_name("capitals.csv").open(encoding="utf-8", newline="") as file:
    COUNTRIES = {row["country"]: row["capital"] for row in csv.DictReader(file)}
TRAINED_ON, HELD_OUT = 58, 48
OPERATIONS = {"plus": operator.add, "times": operator.mul}
OPERANDS, MOST_RESULT = range(2, 17), 99
HELDOUT_ONE_IN = 3
# The questions that the preset answers before it asks one.
EXAMPLES = ("3 plus 4", "2 times 6", "15 plus 20")


def _capital(rng: random.Random, heldout: bool) -> Problem:
    country = rng.choice([name for name in COUNTRIES if is_heldout(name, 10, 4) == heldout])
    question = f"What is the capital of {country}? Answer in one short sentence."
    return Problem(id=country, problem=question, answer=COUNTRIES[country])


def _result(rng: random.Random, heldout: bool) -> Problem:
    """A sum or a product below 100. Both orders of its operands are in the same half."""
    while True:
        first, second, name = rng.choice(OPERANDS), rng.choice(OPERANDS), rng.choice(sorted(OPERATIONS))
        result = OPERATIONS[name](first, second)
        pair = f"{min(first, second)} {name} {max(first, second)}"
        if result <= MOST_RESULT and pair not in EXAMPLES and is_heldout(pair, HELDOUT_ONE_IN) == heldout:
            question = f"What is {first} {name} {second}?"
            return Problem(id=f"{first} {name} {second}", problem=question, answer=str(result))


_on_smollm2 = partial(DemoTask, steps=15, episode=56, heldout=HELD_OUT, evaluated=4, on_smollm2=True)
CAPITALS = _on_smollm2("capitals", "capitals of countries", _capital, TRAINED_ON, HELD_OUT, "cpu/demo_capitals")
ARITHMETIC = _on_smollm2("arithmetic", "small sums and products", _result, 200, 100, "cpu/demo_arithmetic")
