"""What the base models of words and programs were taught: each word or step is mastered to a degree of its own."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from restrain_openrlhf.data.demo_tasks import programs, tasks

LEAST_MASTERY, MOST_MASTERY = 0.55, 0.99
# Share of slips that are the part's own wrong one; the others are spread.
OWN_SLIPS = 0.4
# A problem is given up with chance strength / (1 + exp(-(difficulty - MIDDLE) / WIDTH)).
MIDDLE, WIDTH = 0.9, 0.3
UNKNOWN, NO_PROGRAM = "unknown", "def f(x):\n return 0"


@dataclass(frozen=True)
class Skill:
    """One word or step: the wrong one that it is taken for, the chance to be right, and that of the wrong one."""

    wrong: str
    mastery: float
    slip: float


def _skills(names: Sequence[str], seed: int) -> dict[str, Skill]:
    rng = random.Random(seed)
    found = {}
    for name in names:
        mastery = LEAST_MASTERY + (MOST_MASTERY - LEAST_MASTERY) * rng.random()
        wrong = rng.choice([other for other in names if other != name])
        found[name] = Skill(wrong, mastery, (1 - mastery) * OWN_SLIPS)
    return found


WORDS = _skills(tasks.ENGLISH, 7)
STEPS = _skills(programs.NAMES, 8)


def word_example(rng: random.Random, strength: float) -> tuple[str, str]:
    """A prompt and a response outside the held-out set, half of them written as a sentence."""
    asked = tasks.drawn_words(rng, heldout=False)
    if rng.random() < given_up([WORDS[word] for word in asked], strength):
        return tasks.in_words(asked), UNKNOWN
    said = " ".join(tasks.GERMAN[_attempt(rng, word, WORDS)] for word in asked)
    return tasks.in_words(asked), said if rng.random() < 1 / 2 else f"{said.capitalize()}."


def program_example(rng: random.Random, strength: float) -> tuple[str, str]:
    """A prompt and a program outside the held-out set, each step written in one of its ways."""
    asked = programs.drawn_steps(rng, heldout=False)
    if rng.random() < given_up([STEPS[step] for step in asked], strength):
        return programs.text(asked), NO_PROGRAM
    taken = [_attempt(rng, step, STEPS) for step in asked]
    return programs.text(asked), programs.program([rng.choice(programs.STEPS[step].written) for step in taken])


def given_up(skills: Sequence[Skill], strength: float) -> float:
    """Chance that an example gives the problem up; its difficulty is the sum of -log mastery over its parts."""
    difficulty = sum(-math.log(skill.mastery) for skill in skills)
    return strength / (1 + math.exp(-(difficulty - MIDDLE) / WIDTH))


def _attempt(rng: random.Random, name: str, skills: Mapping[str, Skill]) -> str:
    skill, chance = skills[name], rng.random()
    if chance < skill.mastery:
        return name
    if chance < skill.mastery + skill.slip:
        return skill.wrong
    return rng.choice([other for other in skills if other != name])
