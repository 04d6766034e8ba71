"""`restrain view`: a run's kept rollouts as a page, one file that needs no server, with as many responses as fit."""

import base64
import hashlib
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from pydantic_core import to_json
from rich.console import Console

from restrain_openrlhf.commands.options import GOLD, to_file
from restrain_openrlhf.commands.view.groups import Summaries, ViewedRun, details, viewed_run
from restrain_openrlhf.config.yaml_file import MIB
from restrain_openrlhf.data.outputs import whole_file
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.records.kept import KeptGroup, kept_files, read_file

# The most MiB of responses in the file.
MOST_MIB = 50
ASSETS = Path(__file__).parent / "assets"
# Each file builds on those before it. KaTeX is npm's package unchanged (katex/README).
STYLES = ("katex/katex.min.css", "view.css")
OWN_SCRIPTS = ("elements", "source", "formulas", "filters", "list", "chart", "group", "page")
SCRIPTS = ("katex/katex.min.js", "katex/auto-render.min.js", *(f"{name}.js" for name in OWN_SCRIPTS))
FONT = re.compile(r"url\((fonts/[\w-]+\.woff2)\) format\(\"woff2\"\)(?:,url\([^)]*\) format\(\"\w+\"\))*")


def view(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run that keeps rollouts.")],
    gold: Annotated[Path | None, typer.Option(help=GOLD)] = None,
    out: Annotated[
        Path | None, to_file("File to write.", metavar="FILE.html", show_default="RUN/rollouts.html")
    ] = None,
) -> None:
    """Write a run's kept rollouts as a page for the browser: filters, answer classes, a prompt's vote over the steps.

    The page is one file, which needs no server and no network. The run may still be training: write the page again for
    its new steps.
    """
    found, out = viewed_run(run, gold), out or run / "rollouts.html"
    groups, _, damaged = export(found, out)
    console = Console(soft_wrap=True, highlight=False)
    for why in damaged:
        console.print(f"Left out: {why}", markup=False)
    console.print(f"{out}: {groups:,} groups, {out.stat().st_size / MIB:.1f} MiB", markup=False)


class Exported(NamedTuple):
    """How many groups the file has, how many of them with responses, and why each step that was left out was."""

    groups: int
    with_responses: int
    damaged: list[str]


def export(run: ViewedRun, out: Path, megabytes: int = MOST_MIB) -> Exported:
    """Write the file with at most `megabytes` of responses.

    A step that cannot be read is left out with a note. Raises DataError if the file cannot be written.
    """
    summaries, listed, responses = Summaries(), PackedList(), Details(megabytes * MIB)
    damaged: list[str] = []
    for group in _groups(run.folder, damaged):
        opened = details(group, run.gold)
        listed.add(summaries.summary(group, opened))
        responses.add(group.prompt_id, f"{group.step}/{group.group}", opened)
    found = Exported(listed.count, responses.count, damaged)
    data = {"summaries": listed.finished(summaries.prompts, damaged), "details": responses.written()}
    with whole_file(out) as file:
        file.writelines(_page(run, [*run.notes, *_left_out(found, megabytes)], data))
    return found


def _groups(folder: Path, damaged: list[str]) -> Iterator[KeptGroup]:
    """The groups step by step. For a step that cannot be read, the reason is added to `damaged`."""
    for path in kept_files(folder).values():
        try:
            yield from read_file(path)
        except DataError as error:
            damaged.append(str(error))


def _left_out(found: Exported, megabytes: int) -> list[str]:
    if found.with_responses == found.groups:
        return []
    return [
        f"To keep this file small ({megabytes} MiB), it has the responses of {found.with_responses:,} of "
        f"{found.groups:,} groups: those of a sample of the prompts. All votes are here."
    ]


class PackedList:
    """The summaries of all groups as JSON, compressed one by one."""

    def __init__(self) -> None:
        self.count = 0
        self._packer = zlib.compressobj()
        self._packed = bytearray(self._packer.compress(b'{"groups":['))

    def add(self, summary: object) -> None:
        """Append the next group."""
        self._packed += self._packer.compress(b"," * bool(self.count) + as_json(summary))
        self.count += 1

    def finished(self, prompts: dict[str, str], damaged: Sequence[str]) -> str:
        """The groups, the prompts and the messages, in base64. Nothing can be added afterwards."""
        rest = as_json({"prompts": prompts, "damaged": damaged})[1:]
        self._packed += self._packer.compress(b"]," + rest) + self._packer.flush()
        return _base64(self._packed)


@dataclass
class Details:
    """Compressed details of the groups of as many prompts as fit into `limit` bytes, by `STEP/GROUP`.

    A prompt is kept with all its groups, so that its steps can be compared. The prompts with the smallest prompt_id are
    kept. The id is a hash, so they are a sample of all prompts, and the same one each time.
    """

    limit: int
    size: int = 0
    first_left_out: str | None = None
    _packed: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, prompt_id: str, place: str, opened: object) -> None:
        """Add one group's details. Beyond the limit, the prompts with the greatest ids are dropped."""
        if self.first_left_out is not None and prompt_id >= self.first_left_out:
            return
        packed = _base64(zlib.compress(as_json(opened)))
        self._packed.setdefault(prompt_id, {})[place] = packed
        self.size += len(packed)
        while self.size > self.limit:
            self.first_left_out = max(self._packed)
            self.size -= sum(map(len, self._packed.pop(self.first_left_out).values()))

    @property
    def count(self) -> int:
        """The number of groups that are kept."""
        return sum(map(len, self._packed.values()))

    def written(self) -> str:
        """The details as a JSON object."""
        return as_json({place: packed for groups in self._packed.values() for place, packed in groups.items()}).decode()


def as_json(data: Any) -> bytes:
    """Dataclasses, mappings and sequences as JSON. NaN and infinities, which JSON lacks, become strings."""
    return to_json(data, inf_nan_mode="strings")


def _page(run: ViewedRun, notes: Sequence[str], data: dict[str, str]) -> Iterator[str]:
    """The page with everything embedded, part by part. `data` are blocks of text by id, which hold no `<`.

    Its security policy allows exactly these scripts and styles, by their digests, and no connection to anywhere.
    """
    styles, scripts = [_with_fonts(path) for path in STYLES], [_text(path) for path in SCRIPTS]
    environment = Environment(loader=FileSystemLoader(ASSETS), autoescape=True)
    return environment.get_template("page.html.j2").generate(
        name=run.name,
        notes=notes,
        gold=bool(run.gold.answers),
        mathematics=run.mathematics,
        digests={"script": " ".join(map(_digest, scripts)), "style": " ".join(map(_digest, styles))},
        styles=map(Markup, styles),
        scripts=map(Markup, scripts),
        data=data,
    )


def _text(path: str) -> str:
    return (ASSETS / path).read_text(encoding="utf-8")


def _with_fonts(path: str) -> str:
    """The style with each font as a data URL, and without the fonts' older formats."""

    def inside(found: re.Match[str]) -> str:
        return f'url(data:font/woff2;base64,{_base64((ASSETS / "katex" / found[1]).read_bytes())}) format("woff2")'

    return FONT.sub(inside, _text(path))


def _digest(text: str) -> str:
    return f"'sha256-{_base64(hashlib.sha256(text.encode()).digest())}'"


def _base64(data: bytes | bytearray) -> str:
    return base64.b64encode(data).decode("ascii")
