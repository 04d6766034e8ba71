"""The words task: translating English words into German. Answers are text, compared without case and punctuation."""

import random
import zlib
from collections.abc import Sequence

from restrain_openrlhf.data.demo_tasks.problems import DemoTask
from restrain_openrlhf.data.problems import Problem

GERMAN = {
    "red": "rot", "blue": "blau", "one": "eins", "two": "zwei", "three": "drei", "four": "vier", "ten": "zehn",
    "dog": "hund", "cat": "katze", "cow": "kuh", "fish": "fisch", "tree": "baum", "book": "buch", "moon": "mond",
    "milk": "milch", "bread": "brot", "day": "tag", "night": "nacht", "stone": "stein", "house": "haus",
}  # fmt: skip
ENGLISH = tuple(GERMAN)
COUNTS = (1, 2, 3)
WEIGHTS = (1, 2, 3)
# Words are padded to fixed places. Otherwise a model of this size does not learn the skill.
WIDTH = 5
HELDOUT_ONE_IN = 10
# Fewer than there are, so that drawing distinct problems stays quick.
MOST_PROBLEMS, MOST_HELDOUT = 5_000, 500


def is_heldout(words: Sequence[str]) -> bool:
    """Whether a problem of two words or more is held out, by a checksum."""
    return zlib.crc32(" ".join(words).encode()) % HELDOUT_ONE_IN == 0


def _draw(rng: random.Random, heldout: bool) -> Problem:
    words = drawn_words(rng, heldout)
    return Problem(id="-".join(words), problem=text(words), answer=" ".join(GERMAN[word] for word in words))


def drawn_words(rng: random.Random, heldout: bool) -> list[str]:
    """The distinct words of a problem."""
    (count,) = rng.choices(COUNTS, WEIGHTS)
    while True:
        words = rng.sample(ENGLISH, count)
        if count == 1 or is_heldout(words) == heldout:
            return words


def text(words: Sequence[str]) -> str:
    """The problem as the model reads it: `red..dog.......=`."""
    return "".join(word.ljust(WIDTH, ".") for word in words).ljust(WIDTH * max(COUNTS), ".") + "="


WORDS = DemoTask("words", "English words in German", _draw, MOST_PROBLEMS, MOST_HELDOUT, "cpu/demo_words")
