"""How a study's policies voted, by step: agreement, entropy, the most common majority and, with gold, maj@k."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import fmean

import numpy as np

from restrain_openrlhf.commands.study.plan import StudyRun, configurations
from restrain_openrlhf.errors import ConfigError, DataError
from restrain_openrlhf.evaluation.figures.curves import Panel, number, vote
from restrain_openrlhf.evaluation.label_quality import GroupFacts
from restrain_openrlhf.evaluation.prompt_gold import PromptGold, answers_to, join
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.kept import kept_files, read_kept
from restrain_openrlhf.records.metrics import ENTROPY, read_steps

LOGGED = (
    Panel("mean majority share", vote("majority_share_mean")),
    Panel("entropy, nats per token", number(ENTROPY)),
    Panel("most common majority across prompts", vote("top_answer_share")),
)
MAJ_AT_K = "maj@k of the prompts trained on"
# Steps in one point: a step has few prompts.
WINDOW = 5


@dataclass(frozen=True)
class Course:
    """One quantity of one configuration: `values` (seeds, points), each the mean of WINDOW steps up to `steps`."""

    group: str
    name: str
    quantity: str
    steps: tuple[int, ...]
    values: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """Over seeds, (points,)."""
        return np.asarray(self.values.mean(axis=0))


def courses(runs: Sequence[StudyRun], gold: Mapping[str, str] | None = None) -> list[Course]:
    """Every quantity of every configuration, in the order of the study; `gold` has answers by the problem's hash.

    Without gold there is no maj@k. Raises DataError where no run has a kept rollout of a prompt with gold.
    """
    quantities = {panel.title: partial(_logged, panel) for panel in LOGGED}
    if gold is not None:
        quantities[MAJ_AT_K] = partial(maj_at_k, gold=gold)
    found = [
        course
        for quantity, of in quantities.items()
        for same in configurations(runs)
        if (course := _course(quantity, same, of)) is not None
    ]
    if gold is not None and all(course.quantity != MAJ_AT_K for course in found):
        raise DataError(
            "--gold has no answer to any prompt of the runs' kept rollouts. They are joined by the problem's hash. "
            "Give gold for the prompts trained on, rows {problem, answer}."
        )
    return found


def read_gold(files: Sequence[Path], runs: Sequence[StudyRun]) -> dict[str, str] | None:
    """The answers of several files; None for none.

    Raises DataError where one cannot be read, and ConfigError where no run keeps rollouts.
    """
    if files and not any(run.config.keeps_rollouts for run in runs):
        raise ConfigError("--gold is for maj@k of kept rollouts, and no run keeps any. Set rollouts.keep: 8, or more.")
    flags = [run.config.openrlhf for run in runs]
    return {key: answer for file in files for key, answer in answers_to(flags, file).items()} if files else None


def maj_at_k(run: Path, gold: Mapping[str, str]) -> dict[int, float]:
    """The share of a step's kept groups whose majority is right; empty where none was kept or none has gold."""
    if not kept_files(run):
        return {}
    answers = join({group.prompt for group in read_kept(run)}, gold) or PromptGold()
    right: dict[int, list[bool]] = defaultdict(list)
    for group in read_kept(run):
        if (answer := answers.of(group.prompt)) is not None:
            right[group.step].append(GroupFacts.of(group, answer).majority_right)
    return {step: fmean(each) for step, each in right.items()}


def _logged(panel: Panel, run: Path) -> dict[int, float]:
    rows = read_steps(RunFolder(run).metrics)
    return {row.step: value for row in rows if (value := panel.value(row)) is not None}


def _course(quantity: str, runs: Sequence[StudyRun], of: Callable[[Path], Mapping[int, float]]) -> Course | None:
    by_seed = [by_step for run in runs if (by_step := of(run.config.run_dir))]
    shared = sorted(set.intersection(*(set(by_step) for by_step in by_seed))) if by_seed else []
    if not shared:
        return None
    windows = [list(steps) for _, steps in groupby(shared, key=lambda step: (step - 1) // WINDOW)]
    values = [[fmean(by_step[step] for step in steps) for steps in windows] for by_step in by_seed]
    return Course(runs[0].group, runs[0].name, quantity, tuple(steps[-1] for steps in windows), np.array(values))
