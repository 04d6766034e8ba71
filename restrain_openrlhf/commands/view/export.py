"""The one self-contained file: every group's vote, and the responses of as many prompts as the file may hold."""

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from restrain_openrlhf.commands.view.html import as_json, whole_page
from restrain_openrlhf.commands.view.source import Material, one_page
from restrain_openrlhf.commands.view.summary import Step, Summaries, details
from restrain_openrlhf.data.outputs import whole_file
from restrain_openrlhf.records.kept import kept_files, read_file

MIB = 1 << 20


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


def export(material: Material, out: Path, megabytes: int) -> tuple[int, int]:
    """Write the file; returns how many groups it has, and how many of them with responses, which `megabytes` bound.

    Raises DataError where a step cannot be read, and where the file cannot be written.
    """
    summaries, responses = Summaries(material.gold, material.reference), Responses(megabytes * MIB)
    steps: list[Step] = []
    for path in kept_files(material.run).values():
        groups = read_file(path)
        steps.append(summaries.step(groups))
        for group in groups:
            opened = packed(as_json(details(group, material.gold)))
            responses.add(group.prompt_id, f"{group.step}/{group.group}", opened)
    page, places = one_page(steps, len(steps), len(steps)), responses.by_place()
    count = len(page.groups)
    left_out = (
        f"To keep this file small (--max-mb {megabytes}), it has the responses of {len(places):,} of "
        f"{count:,} groups: those of a sample of the prompts. All votes are here."
    )
    data = {"summaries": packed(as_json(page)), "details": as_json(places).decode()}
    with whole_file(out) as file:
        file.write(whole_page(material, [left_out] if len(places) < count else [], data))
    return count, len(places)


def packed(data: bytes) -> str:
    """Compressed by zlib, in base64."""
    return base64.b64encode(zlib.compress(data)).decode("ascii")
