"""A run's kept rollouts as the page asks for them: summaries page by page, one open group, steps that are new."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Self

from restrain_openrlhf.errors import DataError
from restrain_openrlhf.kept import KeptGroup, kept_files, read_file
from restrain_openrlhf.view.details import GroupDetails, details
from restrain_openrlhf.view.material import Material
from restrain_openrlhf.view.summary import GroupSummary, Summaries

# Groups that a page has at least, whole steps.
PAGE = 1000


@dataclass(frozen=True)
class StepFile:
    """One step's file as it was found; another size or time is another file."""

    path: Path
    size: int
    changed: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """The file at `path`. Raises DataError where it is gone: a run that is resumed drops what it writes again."""
        try:
            found = path.stat()
        except FileNotFoundError:
            raise DataError(f"{path}: is gone. Load the page again.") from None
        return cls(path, found.st_size, found.st_mtime_ns)


@dataclass(frozen=True)
class StepSummaries:
    """One step's groups, and the prompts that no step before had, by prompt_id."""

    groups: tuple[GroupSummary, ...]
    prompts: Mapping[str, str]


@dataclass(frozen=True)
class Page:
    """The groups and new prompts of some steps. `next` is the place of the first step after them; None: no more."""

    groups: tuple[GroupSummary, ...]
    prompts: Mapping[str, str]
    steps_read: int
    steps: int
    next: int | None


@dataclass
class StepReader:
    """Reads a run's steps in their order, since a flip is one against what came before."""

    _summaries: Summaries
    _known: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, material: Material) -> Self:
        """A reader at the run's first step."""
        return cls(Summaries(material.gold, material.reference))

    def summaries(self, groups: list[KeptGroup]) -> StepSummaries:
        """Those of the next step's groups."""
        new = {group.prompt_id: group.prompt for group in groups if group.prompt_id not in self._known}
        self._known |= set(new)
        return StepSummaries(tuple(self._summaries.summary(group) for group in groups), new)


class ViewedRun:
    """A run that is looked at, and may go on meanwhile. Safe from any thread."""

    def __init__(self, material: Material) -> None:
        """Nothing is read before the first page."""
        self.material = material
        self._lock = Lock()
        self._files: list[StepFile] = []
        self._forget()

    def page(self, start: int = 0) -> Page:
        """The steps from place `start` on, as many as make PAGE groups. The first page looks for new steps.

        Raises DataError where a file cannot be read.
        """
        with self._lock:
            if start == 0:
                self._look()
            end, count = start, 0
            while end < len(self._files) and count < PAGE:
                count += len(self._step(end).groups)
                end += 1
            steps = self._read[start:end]
            groups = tuple(group for step in steps for group in step.groups)
            prompts = {key: text for step in steps for key, text in step.prompts.items()}
            return Page(groups, prompts, end, len(self._files), end if end < len(self._files) else None)

    def details(self, step: int, group: int) -> GroupDetails | None:
        """An open group; None where none was kept under these numbers. Raises DataError as `page`."""
        path = kept_files(self.material.run).get(step)
        found = [each for each in _groups(StepFile.of(path)) if each.group == group] if path else []
        return details(found[0], self.material.gold) if found else None

    def _look(self) -> None:
        files = [StepFile.of(path) for path in kept_files(self.material.run).values()]
        # A run that was resumed from a checkpoint writes some steps again: all that was read may have changed.
        if files[: len(self._read)] != self._files[: len(self._read)]:
            self._forget()
        self._files = files

    def _step(self, place: int) -> StepSummaries:
        while len(self._read) <= place:
            self._read.append(self._reader.summaries(_groups(self._files[len(self._read)])))
        return self._read[place]

    def _forget(self) -> None:
        self._read: list[StepSummaries] = []
        self._reader = StepReader.of(self.material)


# The step whose groups are being opened, and the one before it.
@lru_cache(maxsize=2)
def _groups(file: StepFile) -> list[KeptGroup]:
    return read_file(file.path)
