"""Reads kept rollouts as the page asks for them: runs with their gold, pages of summaries, one open group."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from threading import Lock

from restrain_openrlhf.commands.view.summary import (
    FrozenVotes,
    GroupDetails,
    GroupSummary,
    Summaries,
    details,
    no_votes,
)
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.figures import distinct_names
from restrain_openrlhf.evaluation.labels import PromptGold, gold_for
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.kept import (
    FOLDER,
    KeptGroup,
    groups_with,
    kept_files,
    kept_prompts,
    read_file,
    read_kept,
)
from restrain_openrlhf.reference import load_reference

# The least number of groups on a page, which has whole steps.
PAGE = 1000
# How many browsers can read at the same time without any step being read twice.
READERS = 4
FLIPPED = "Flipped: the majority answer is not that of the prompt's previous group."
# The run's number, and a step's file with its size and time, so that a file that was written again differs.
StepFile = tuple[int, Path, int, int]


@dataclass(frozen=True)
class Run:
    """A run to look at, its name on the page, whether its answers are mathematics, and the frozen model's votes."""

    folder: Path
    name: str
    mathematics: bool = True
    reference: FrozenVotes = no_votes


@dataclass(frozen=True)
class Material:
    """One run, or two side by side, and the gold of their prompts."""

    runs: tuple[Run, ...]
    gold: PromptGold = field(default_factory=PromptGold)
    notes: tuple[str, ...] = ()

    @property
    def references(self) -> tuple[FrozenVotes, ...]:
        """The frozen votes of each run."""
        return tuple(run.reference for run in self.runs)

    def files(self) -> list[tuple[int, Path]]:
        """Pairs of a run's number and a step's file, run by run and in the order of the steps."""
        return [(number, path) for number, run in enumerate(self.runs) for path in kept_files(run.folder).values()]


def material(run: Path, gold: Path | None, beside: Path | None = None) -> Material:
    """Collect the material of one run or two. Raises a RestrainError if nothing was kept, or a file cannot be used."""
    folders = [run, beside] if beside else [run]
    for folder in folders:
        _refuse_without_rollouts(folder)
    if beside and beside.resolve() == run.resolve():
        raise DataError(f"--beside {beside}: is the run itself. Give another run.")
    names = distinct_names(folders) if beside else ["/".join(run.resolve().parts[-2:])]
    found = [_run(folder, name) for folder, name in zip(folders, names, strict=True)]
    notes = [FLIPPED, *(f"{each.name}: {note}" if beside else note for each, note in found if note)]
    answers, kept = PromptGold(), [kept_prompts(folder, skip_damaged=True) for folder in folders if beside or gold]
    if beside:
        notes.insert(0, f"Prompts in both runs: {len(frozenset.intersection(*kept)):,}.")
    if gold:
        prompts = frozenset[str]().union(*kept)
        answers = gold_for(prompts, gold, RunFolder(run).flags(), RunFolder(run).kind)
        graded = sum(answers.of(prompt) is not None for prompt in prompts)
        notes.insert(0, f"Gold has {graded:,} of {len(prompts):,} prompts.")
    return Material(tuple(each for each, _ in found), answers, tuple(notes))


def _refuse_without_rollouts(folder: Path) -> None:
    if not folder.is_dir():
        raise DataError(f"{folder}: {'is a file' if folder.exists() else 'no such folder'}. Give a run's folder.")
    if kept_files(folder):
        return
    inside = sorted({path.parents[1] for path in folder.rglob(f"{FOLDER}/step-*.parquet")})
    if not inside:
        next(read_kept(folder))
    listed = "".join(f"\n    restrain view {each}" for each in inside)
    raise DataError(
        f"{folder}: is not a run's folder. View one of the runs inside, or two of them with --beside:{listed}"
    )


def _run(folder: Path, name: str) -> tuple[Run, str]:
    """The run, and a note on what its first groups are compared with."""
    record = RunFolder(folder).record()
    named, mathematics = record.get("reference"), not record.get("answers")
    if named is None:
        return Run(folder, name, mathematics), ""
    if not Path(named).exists():
        missing = f"The run's reference, {named}, is missing, so first groups are not compared."
        return Run(folder, name, mathematics), missing
    reference = load_reference(Path(named))

    def votes(prompt_id: str) -> tuple[str, str] | None:
        row = reference.by_prompt_hash(prompt_id)
        return None if row is None or row.majority is None else (row.majority, row.majority_key or "")

    return Run(folder, name, mathematics, votes), "A prompt's first group is compared with the reference."


@dataclass(frozen=True)
class Page:
    """The groups and new prompts of some steps. `next` is the place of the first step after them, or None at the end.

    `damaged` has a message for each file that cannot be read, whose step is left out.
    """

    groups: tuple[GroupSummary, ...]
    prompts: Mapping[str, str]
    damaged: tuple[str, ...]
    steps_read: int
    steps: int
    next: int | None


def read_or_note(path: Path, damaged: list[str]) -> list[KeptGroup]:
    """The groups of a step's file. If it cannot be read, there are none, and the reason is added to `damaged`."""
    try:
        return read_file(path)
    except DataError as error:
        damaged.append(str(error))
        return []


class ViewedRuns:
    """Runs that are looked at while they may still be training. Safe to use from several threads."""

    def __init__(self, material: Material) -> None:
        """Read nothing before the first page is asked for."""
        self.material = material
        self._lock = Lock()
        self._files: list[StepFile] = []
        # Summaries of all steps before a place, for the request that continues from there.
        self._before: dict[int, Summaries] = {}

    def page(self, start: int = 0) -> Page:
        """The steps from place `start` on, as many as make PAGE groups. The first page looks for new steps.

        A page is read when it is asked for, and is not kept.
        """
        with self._lock:
            if start == 0:
                self._look()
            summaries = self._before.pop(start, None) or self._up_to(start)
            groups, prompts, damaged = list[GroupSummary](), dict[str, str](), list[str]()
            end, count = start, len(self._files)
            while end < count and len(groups) < PAGE:
                run, path, *_ = self._files[end]
                step = summaries.step(read_or_note(path, damaged), run)
                groups += step.groups
                prompts.update(step.prompts)
                end += 1
            if end < count:
                self._before[end] = summaries
                for place in list(self._before)[:-READERS]:
                    del self._before[place]
            return Page(tuple(groups), prompts, tuple(damaged), end, count, end if end < count else None)

    def _up_to(self, start: int) -> Summaries:
        """Summaries of all steps before `start`, read anew for a request that no earlier page leads to."""
        summaries = Summaries(self.material.gold, *self.material.references)
        for run, path, *_ in self._files[:start]:
            summaries.step(read_or_note(path, []), run)
        return summaries

    def details(self, run: int, step: int, group: int) -> GroupDetails | None:
        """One group in full; None if no such group was kept. Raises DataError if it cannot be read."""
        path = kept_files(self.material.runs[run].folder).get(step) if run < len(self.material.runs) else None
        found = [each for each in _groups(_file(run, path)) if each.group == group] if path else []
        return details(found[0], self.material.gold) if found else None

    def places_with(self, text: str) -> list[str]:
        """RUN/STEP/GROUP of each group that has a response with this text. Damaged files are left out."""
        found = list[str]()
        for run, shown in enumerate(self.material.runs):
            for step, path in kept_files(shown.folder).items():
                with suppress(DataError):
                    found += [f"{run}/{step}/{group}" for group in groups_with(path, text)]
        return found

    def _look(self) -> None:
        files = [_file(run, path) for run, path in self.material.files()]
        # A run that is resumed from a checkpoint writes some steps again, so what was read before may have changed.
        if files[: len(self._files)] != self._files:
            self._before.clear()
        self._files = files


def _file(run: int, path: Path) -> StepFile:
    try:
        found = path.stat()
    except FileNotFoundError:
        # A resumed run deletes the steps that it will write again.
        raise DataError(f"{path}: no longer exists. Load the page again.") from None
    return run, path, found.st_size, found.st_mtime_ns


# For two runs, the step whose groups are being opened and the one before.
@lru_cache(maxsize=4)
def _groups(file: StepFile) -> list[KeptGroup]:
    return read_file(file[1])
