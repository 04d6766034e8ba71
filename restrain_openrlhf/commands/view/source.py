"""A run's kept rollouts as the page asks for them: what lies beside them, summaries page by page, one open group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from threading import Lock

from restrain_openrlhf.commands.view.summary import (
    FrozenVotes,
    GroupDetails,
    GroupSummary,
    Step,
    Summaries,
    details,
    no_votes,
)
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.prompt_gold import PromptGold, gold_for
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.kept import KeptGroup, kept_files, kept_prompts, read_file, read_kept
from restrain_openrlhf.reference import load_reference

# Groups that a page has at least, whole steps.
PAGE = 1000
# Pages of the run, in browsers, that may be read at the same time without reading a step twice.
READERS = 4
# A step's file, its size and its time: one that was written again is another.
StepFile = tuple[Path, int, int]


@dataclass(frozen=True)
class Material:
    """A run to look at, with the frozen model's votes."""

    run: Path
    gold: PromptGold = field(default_factory=PromptGold)
    reference: FrozenVotes = no_votes
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The run's, as the page shows it."""
        return self.run.resolve().name


def material(run: Path, gold: Path | None) -> Material:
    """What is found for a run. Raises a RestrainError where nothing was kept, or a file cannot be used."""
    if not run.is_dir():
        raise DataError(f"{run}: {'is a file' if run.exists() else 'no such folder'}. Give a run's folder.")
    next(read_kept(run))
    answers, notes = PromptGold(), list[str]()
    if gold:
        prompts = kept_prompts(run)
        answers = gold_for(prompts, gold, RunFolder(run).flags(), RunFolder(run).kind)
        graded = sum(answers.of(prompt) is not None for prompt in prompts)
        notes.append(f"Gold has {graded:,} of {len(prompts):,} prompts.")
    named = RunFolder(run).record().get("reference")
    flipped = "Flipped: a majority answer other than that of the prompt's group before"
    if named is None:
        return Material(run, answers, no_votes, (*notes, f"{flipped}."))
    if not Path(named).exists():
        gone = f"{flipped}. The run's reference, {named}, is not there to compare with."
        return Material(run, answers, no_votes, (*notes, gone))
    reference = load_reference(Path(named))

    def votes(prompt_id: str) -> tuple[str, str] | None:
        row = reference.by_prompt_hash(prompt_id)
        return None if row is None or row.majority is None else (row.majority, row.majority_key or "")

    return Material(run, answers, votes, (*notes, f"{flipped}, its first one with the reference's."))


@dataclass(frozen=True)
class Page:
    """The groups and new prompts of some steps. `next` is the place of the first step after them; None: no more."""

    groups: tuple[GroupSummary, ...]
    prompts: Mapping[str, str]
    steps_read: int
    steps: int
    next: int | None


def one_page(steps: Sequence[Step], end: int, count: int) -> Page:
    """These steps, the last of which comes before place `end` of `count`."""
    groups = tuple(group for step in steps for group in step.groups)
    prompts = {key: text for step in steps for key, text in step.prompts.items()}
    return Page(groups, prompts, end, count, end if end < count else None)


class ViewedRun:
    """A run that is looked at, and may go on meanwhile. Safe from any thread."""

    def __init__(self, material: Material) -> None:
        """Nothing is read before the first page."""
        self.material = material
        self._lock = Lock()
        self._files: list[StepFile] = []
        # What was read before a place, for whoever goes on from there.
        self._before: dict[int, Summaries] = {}

    def page(self, start: int = 0) -> Page:
        """The steps from place `start` on, as many as make PAGE groups. The first page looks for new steps.

        A page is read when it is asked for, and not kept. Raises DataError where a file cannot be read.
        """
        with self._lock:
            if start == 0:
                self._look()
            summaries = self._before.pop(start, None) or self._up_to(start)
            steps: list[Step] = []
            end, count = start, 0
            while end < len(self._files) and count < PAGE:
                steps.append(summaries.step(read_file(self._files[end][0])))
                count += len(steps[-1].groups)
                end += 1
            if end < len(self._files):
                self._before[end] = summaries
                for place in list(self._before)[:-READERS]:
                    del self._before[place]
            return one_page(steps, end, len(self._files))

    def _up_to(self, start: int) -> Summaries:
        """What those who begin there, and nobody before them, need: all steps before are read for it."""
        summaries = Summaries(self.material.gold, self.material.reference)
        for path, *_ in self._files[:start]:
            summaries.step(read_file(path))
        return summaries

    def details(self, step: int, group: int) -> GroupDetails | None:
        """An open group; None where none was kept under these numbers. Raises DataError as `page`."""
        path = kept_files(self.material.run).get(step)
        found = [each for each in _groups(_file(path)) if each.group == group] if path else []
        return details(found[0], self.material.gold) if found else None

    def _look(self) -> None:
        files = [_file(path) for path in kept_files(self.material.run).values()]
        # A run that was resumed from a checkpoint writes some steps again: all that was read may have changed.
        if files[: len(self._files)] != self._files:
            self._before.clear()
        self._files = files


def _file(path: Path) -> StepFile:
    try:
        found = path.stat()
    except FileNotFoundError:
        # A run that is resumed drops what it writes again.
        raise DataError(f"{path}: is gone. Load the page again.") from None
    return path, found.st_size, found.st_mtime_ns


# The step whose groups are being opened, and the one before it.
@lru_cache(maxsize=2)
def _groups(file: StepFile) -> list[KeptGroup]:
    return read_file(file[0])
