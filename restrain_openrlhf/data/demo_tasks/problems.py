"""A task of the demo: distinct problems, drawn for training or held out, with its preset and its shipped base model."""

import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.data.demo_tasks.smollm2 import smollm2_folder
from restrain_openrlhf.data.gold import PromptOnly
from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.data.problems import Problem
from restrain_openrlhf.errors import DataError

MODELS = Path(__file__).parent / "models"
# How many parts a problem of words or of programs has, and how often.
COUNTS = (1, 2, 3)
WEIGHTS = (1, 2, 3)


@dataclass(frozen=True)
class DemoTask:
    """A task of the demo, with its default steps and methods.

    `draw` makes a problem, held out or not; the task has more than `most` and `most_heldout` of them. A run of more
    than `episode` prompts visits the same prompts again; None: every step has new prompts. `heldout` problems measure
    the policy, and during training `evaluated` rollouts of each do. A task `on_smollm2` fetches that model, measures
    greedily and on the problems trained on, too, and shows what `restrain premise` and `restrain view` make of them.
    """

    name: str
    about: str
    draw: Callable[[random.Random, bool], Problem]
    most: int
    most_heldout: int
    preset: str
    heldout_seed: int = 10
    steps: int = 20
    methods: tuple[str, ...] = ("restrain", "ttrl")
    episode: int | None = 640
    heldout: int = 200
    evaluated: int = 8
    on_smollm2: bool = False

    @property
    def model(self) -> Path:
        return smollm2_folder() if self.on_smollm2 else MODELS / self.name

    def training_set(self, prompts: int) -> list[Problem]:
        """The problems of a run that visits `prompts` prompts."""
        return self.training_problems(prompts if self.episode is None else min(prompts, self.episode))

    def training_problems(self, count: int, seed: int = 1) -> list[Problem]:
        """`count` distinct problems that are not held out. Raises DataError for more than `most`."""
        return self._distinct(seed, False, count, self.most)

    def heldout_problems(self, count: int, seed: int | None = None) -> list[Problem]:
        """`count` distinct problems that no training set has, except for the shortest.

        Raises DataError for more than `most_heldout`.
        """
        return self._distinct(self.heldout_seed if seed is None else seed, True, count, self.most_heldout)

    def _distinct(self, seed: int, heldout: bool, count: int, most: int) -> list[Problem]:
        """The first `count` problems with different texts. Raises DataError if `count` is more than `most`."""
        if not 1 <= count <= most:
            raise DataError(
                f"{count} problems were requested; this demo task gives 1 to {most:,}. "
                "Choose another number of steps or of prompts per step."
            )
        rng, found = random.Random(seed), dict[str, Problem]()
        while len(found) < count:
            problem = self.draw(rng, heldout)
            found.setdefault(problem.text, problem)
        return list(found.values())


def is_heldout(joined: str, one_in: int, of_them: int = 1) -> bool:
    """Whether a problem of several parts is held out, as `of_them` of so many, by a checksum of its parts."""
    return zlib.crc32(joined.encode()) % one_in < of_them


def in_places(parts: Sequence[str], width: int) -> str:
    """The parts padded to fixed places. Otherwise a model of this size does not learn the skill."""
    return "".join(part.ljust(width, ".") for part in parts).ljust(width * max(COUNTS), ".") + "="


def write_prompts(path: Path, problems: Sequence[Problem]) -> None:
    write_rows(path, (PromptOnly(id=problem.id, problem=problem.problem, row=problem.row) for problem in problems))


def write_gold(path: Path, problems: Sequence[Problem]) -> None:
    """Write problems with their answers, for evaluation and for the supervised upper bound."""
    write_rows(path, problems)
