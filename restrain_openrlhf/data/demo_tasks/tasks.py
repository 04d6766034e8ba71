"""The tasks of the demo by name: sums and words for models of ours, and plain English for a pretrained model."""

import csv
import operator
import random
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from restrain_openrlhf.data.demo_tasks.premise import PREMISE
from restrain_openrlhf.data.demo_tasks.problems import COUNTS, WEIGHTS, DemoTask, in_places, is_heldout
from restrain_openrlhf.data.demo_tasks.programs import PROGRAMS
from restrain_openrlhf.data.problems import Problem
from restrain_openrlhf.errors import ConfigError

# Three-digit additions, on which most majorities are right. One of ten is held out, by a hash of its text, so that both
# sets have all digits.
DIGITS, ADDITIONS_ONE_IN = 3, 10
# Below half of the held-out additions, so that drawing distinct problems stays quick.
MOST_ADDITIONS = 40_000
# English words in German. Answers are text, compared without case and punctuation.
GERMAN = {
    "red": "rot", "blue": "blau", "one": "eins", "two": "zwei", "three": "drei", "four": "vier", "ten": "zehn",
    "dog": "hund", "cat": "katze", "cow": "kuh", "fish": "fisch", "tree": "baum", "book": "buch", "moon": "mond",
    "milk": "milch", "bread": "brot", "day": "tag", "night": "nacht", "stone": "stein", "house": "haus",
}  # fmt: skip
ENGLISH = tuple(GERMAN)
WIDTH, WORDS_ONE_IN = 5, 10
# Countries whose capital has one common spelling, so that gold needs no second form: 58 to train on, 48 held out.
with Path(__file__).with_name("capitals.csv").open(encoding="utf-8", newline="") as file:
    COUNTRIES = {row["country"]: row["capital"] for row in csv.DictReader(file)}
TRAINED_ON, HELD_OUT = 58, 48
# Small arithmetic, and the question that its preset answers before it asks one.
OPERATIONS = {"plus": operator.add, "times": operator.mul}
OPERANDS, MOST_RESULT, RESULTS_ONE_IN = range(2, 17), 99, 3
EXAMPLE = "3 plus 4"


def is_heldout_addition(first: int, second: int) -> bool:
    """Whether an addition is held out. This does not depend on the order of its operands."""
    return is_heldout(f"{min(first, second)}+{max(first, second)}", ADDITIONS_ONE_IN)


def _addition(rng: random.Random, heldout: bool) -> Problem:
    low, high = 10 ** (DIGITS - 1), 10**DIGITS
    while True:
        first, second = rng.randrange(low, high), rng.randrange(low, high)
        if is_heldout_addition(first, second) == heldout:
            return Problem(id=f"add-{first}-{second}", problem=f"{first}+{second}=", answer=str(first + second))


def _translation(rng: random.Random, heldout: bool) -> Problem:
    words = drawn_words(rng, heldout)
    return Problem(id="-".join(words), problem=in_words(words), answer=" ".join(GERMAN[word] for word in words))


def drawn_words(rng: random.Random, heldout: bool) -> list[str]:
    (count,) = rng.choices(COUNTS, WEIGHTS)
    while True:
        words = rng.sample(ENGLISH, count)
        if count == 1 or is_heldout(" ".join(words), WORDS_ONE_IN) == heldout:
            return words


def in_words(words: Sequence[str]) -> str:
    """The problem as the model reads it: `red..dog.......=`."""
    return in_places(words, WIDTH)


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
        if result <= MOST_RESULT and pair != EXAMPLE and is_heldout(pair, RESULTS_ONE_IN) == heldout:
            question = f"What is {first} {name} {second}?"
            return Problem(id=f"{first} {name} {second}", problem=question, answer=str(result))


ADDITION = DemoTask(
    "addition",
    "additions",
    _addition,
    MOST_ADDITIONS,
    MOST_ADDITIONS,
    "cpu/demo_addition",
    heldout_seed=2,
    methods=("restrain",),
    episode=None,
)
training_problems, heldout_problems = ADDITION.training_problems, ADDITION.heldout_problems
# Of words there are more, but so drawing distinct problems stays quick.
WORDS = DemoTask("words", "English words in German", _translation, 5_000, 500, "cpu/demo_words")
_on_smollm2 = partial(DemoTask, steps=15, episode=56, heldout=HELD_OUT, evaluated=4, on_smollm2=True)
CAPITALS = _on_smollm2("capitals", "capitals of countries", _capital, TRAINED_ON, HELD_OUT, "cpu/demo_capitals")
ARITHMETIC = _on_smollm2("arithmetic", "small sums and products", _result, 200, 100, "cpu/demo_arithmetic")
TASKS: Mapping[str, DemoTask] = {task.name: task for task in (WORDS, PREMISE, ADDITION, PROGRAMS, CAPITALS, ARITHMETIC)}


def task_named(name: str) -> DemoTask:
    """The task of that name. Raises ConfigError if there is none."""
    if name not in TASKS:
        raise ConfigError(f"There is no demo task {name!r}. The tasks are: {', '.join(TASKS)}.")
    return TASKS[name]
