"""The one self-contained file: every group's vote, and the responses of as many prompts as the file may hold."""

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from restrain_openrlhf.data.outputs import whole_file
from restrain_openrlhf.kept import kept_files, read_file
from restrain_openrlhf.view.details import details
from restrain_openrlhf.view.html import whole_page
from restrain_openrlhf.view.material import Material
from restrain_openrlhf.view.source import Page, StepReader, StepSummaries
from restrain_openrlhf.view.wire import as_json

MIB = 1 << 20


@dataclass(frozen=True)
class Exported:
    """What went into the file: groups in the list, and how many of them have their responses."""

    path: Path
    groups: int
    with_responses: int

    @property
    def bytes(self) -> int:
        """The file's size."""
        return self.path.stat().st_size


@dataclass
class Responses:
    """Packed details of the groups of as many prompts as `limit` bytes hold.

    A prompt is in with all its groups, so that its steps can be compared. Which are in goes by prompt_id, a hash: they
    are a sample of all prompts, the same each time.
    """

    limit: int
    size: int = 0
    _packed: dict[str, dict[str, str]] = field(default_factory=dict)
    _first_left_out: str | None = None

    def add(self, prompt_id: str, place: str, packed: str) -> None:
        """Add one group's; where that is too much, the prompts with the greatest ids go."""
        if self._first_left_out is not None and prompt_id >= self._first_left_out:
            return
        self._packed.setdefault(prompt_id, {})[place] = packed
        self.size += len(packed)
        while self.size > self.limit:
            last = max(self._packed)
            self.size -= sum(map(len, self._packed.pop(last).values()))
            self._first_left_out = last

    def by_place(self) -> Mapping[str, str]:
        """Packed details by `STEP/GROUP`."""
        return {place: packed for groups in self._packed.values() for place, packed in groups.items()}


def export(material: Material, out: Path, megabytes: int) -> Exported:
    """Write the file. `megabytes` bounds its responses; the page says what was left out.

    Raises DataError where a step cannot be read, and where the file cannot be written.
    """
    reader, responses = StepReader.of(material), Responses(megabytes * MIB)
    steps: list[StepSummaries] = []
    for path in kept_files(material.run).values():
        groups = read_file(path)
        steps.append(reader.summaries(groups))
        for group in groups:
            responses.add(
                group.prompt_id, f"{group.step}/{group.group}", packed(as_json(details(group, material.gold)))
            )
    page, places = _one_page(steps), responses.by_place()
    left_out = [_left_out(len(places), len(page.groups), megabytes)] if len(places) < len(page.groups) else []
    data = {"summaries": packed(as_json(page)), "details": as_json(places)}
    with whole_file(out) as file:
        file.write(whole_page(material.name, [*material.notes, *left_out], bool(material.gold.answers), data))
    return Exported(out, len(page.groups), len(places))


def packed(text: str) -> str:
    """Compressed by zlib, in base64."""
    return base64.b64encode(zlib.compress(text.encode("ascii"))).decode("ascii")


def _one_page(steps: list[StepSummaries]) -> Page:
    groups = tuple(group for step in steps for group in step.groups)
    prompts = {key: text for step in steps for key, text in step.prompts.items()}
    return Page(groups, prompts, len(steps), len(steps), None)


def _left_out(kept: int, groups: int, megabytes: int) -> str:
    return (
        f"To keep this file small (--max-mb {megabytes}), it has the responses of {kept:,} of {groups:,} groups: those "
        "of a sample of the prompts. All votes are here."
    )
