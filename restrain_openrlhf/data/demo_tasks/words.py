"""The words task: translating English words into German. Answers are text, compared without case and punctuation."""

import random
from collections.abc import Sequence

from restrain_openrlhf.data.demo_tasks.problems import COUNTS, WEIGHTS, DemoTask, in_places, is_heldout
from restrain_openrlhf.data.problems import Problem

GERMAN = {
    "red": "rot", "blue": "blau", "one": "eins", "two": "zwei", "three": "drei", "four": "vier", "ten": "zehn",
    "dog": "hund", "cat": "katze", "cow": "kuh", "fish": "fisch", "tree": "baum", "book": "buch", "moon": "mond",
    "milk": "milch", "bread": "brot", "day": "tag", "night": "nacht", "stone": "stein", "house": "haus",
}  # fmt: skip
ENGLISH = tuple(GERMAN)
WIDTH = 5
HELDOUT_ONE_IN = 10
# Fewer than there are, so that drawing distinct problems stays quick.
MOST_PROBLEMS, MOST_HELDOUT = 5_000, 500


def _draw(rng: random.Random, heldout: bool) -> Problem:
    words = drawn_words(rng, heldout)
    return Problem(id="-".join(words), problem=text(words), answer=" ".join(GERMAN[word] for word in words))


def drawn_words(rng: random.Random, heldout: bool) -> list[str]:
    """The distinct words of a problem."""
    (count,) = rng.choices(COUNTS, WEIGHTS)
    while True:
        words = rng.sample(ENGLISH, count)
        if count == 1 or is_heldout(" ".join(words), HELDOUT_ONE_IN) == heldout:
            return words


def text(words: Sequence[str]) -> str:
    """The problem as the model reads it: `red..dog.......=`."""
    return in_places(words, WIDTH)


WORDS = DemoTask("words", "English words in German", _draw, MOST_PROBLEMS, MOST_HELDOUT, "cpu/demo_words")
