"""The page as HTML: linked to the server's assets, or self-contained with responses of as many prompts as fit."""

import base64
import hashlib
import re
import zlib
from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from pydantic_core import to_json

from restrain_openrlhf.commands.view.source import Material, read_or_note
from restrain_openrlhf.commands.view.summary import Step, Summaries, details
from restrain_openrlhf.config.yaml_file import MIB
from restrain_openrlhf.data.outputs import whole_file

ASSETS = Path(__file__).parent / "assets"
# Each file builds on those before it. KaTeX is npm's package unchanged (katex/README).
STYLES = ("katex/katex.min.css", "view.css")
OWN_SCRIPTS = ("elements", "source", "formulas", "filters", "list", "chart", "group", "page")
SCRIPTS = ("katex/katex.min.js", "katex/auto-render.min.js", *(f"{name}.js" for name in OWN_SCRIPTS))
FONT = re.compile(r"url\((fonts/[\w-]+\.woff2)\) format\(\"woff2\"\)(?:,url\([^)]*\) format\(\"\w+\"\))*")
NOTHING_ELSE = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:"
SERVED_POLICY = f"{NOTHING_ELSE}; script-src 'self'; style-src 'self'; font-src 'self'; connect-src 'self'"


def served_page(material: Material) -> str:
    """The page with links to the server's /assets."""
    styles = [Markup('<link rel="stylesheet" href="assets/{}">').format(path) for path in STYLES]
    scripts = [Markup('<script src="assets/{}"></script>').format(path) for path in SCRIPTS]
    return "".join(_page(material, (), SERVED_POLICY, styles, scripts, {}))


def whole_page(material: Material, more_notes: Sequence[str], data: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """The page with everything embedded, part by part. `data` are blocks of text by id, which hold no `<`.

    Its security policy allows exactly these scripts and styles, by their digests, and no connection to anywhere.
    """
    styles, scripts = [_with_fonts(path) for path in STYLES], [_text(path) for path in SCRIPTS]
    allowed = (
        f"script-src {' '.join(map(_digest, scripts))}; style-src {' '.join(map(_digest, styles))}; font-src data:"
    )
    style_tags = [Markup("<style>{}</style>").format(Markup(text)) for text in styles]
    script_tags = [Markup("<script>{}</script>").format(Markup(text)) for text in scripts]
    return _page(material, more_notes, f"{NOTHING_ELSE}; {allowed}", style_tags, script_tags, data)


def _page(
    material: Material,
    more: Sequence[str],
    policy: str,
    styles: list[Markup],
    scripts: list[Markup],
    data: Mapping[str, Iterable[str]],
) -> Iterator[str]:
    return (
        Environment(loader=FileSystemLoader(ASSETS), autoescape=True)
        .get_template("page.html.j2")
        .generate(
            names=[run.name for run in material.runs],
            notes=[*material.notes, *more],
            gold=bool(material.gold.answers),
            mathematics=all(run.mathematics for run in material.runs),
            policy=policy,
            styles=styles,
            scripts=scripts,
            data={key: map(Markup, parts) for key, parts in data.items()},
        )
    )


def _text(path: str) -> str:
    return (ASSETS / path).read_text(encoding="utf-8")


def _with_fonts(path: str) -> str:
    """The style with each font as a data URL, and without the fonts' older formats."""

    def inside(found: re.Match[str]) -> str:
        font = base64.b64encode((ASSETS / "katex" / found[1]).read_bytes()).decode()
        return f'url(data:font/woff2;base64,{font}) format("woff2")'

    return FONT.sub(inside, _text(path))


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def as_json(data: Any) -> bytes:
    """Dataclasses, mappings and sequences as JSON. NaN and infinities, which JSON lacks, become strings."""
    return to_json(data, inf_nan_mode="strings")


@dataclass
class Responses:
    """Compressed details of the groups of as many prompts as fit into `limit` bytes.

    A prompt is kept with all its groups, so that its steps can be compared. The prompts with the smallest prompt_id are
    kept. The id is a hash, so they are a sample of all prompts, and the same one each time.
    """

    limit: int
    size: int = 0
    _packed: dict[str, dict[str, str]] = field(default_factory=dict)
    # The kept prompts, in the order of their ids.
    _ids: list[str] = field(default_factory=list)
    _first_left_out: str | None = None

    def add(self, prompt_id: str, place: str, packed: str) -> None:
        """Add one group's details. Beyond the limit, the prompts with the greatest ids are dropped."""
        if self._first_left_out is not None and prompt_id >= self._first_left_out:
            return
        if prompt_id not in self._packed:
            insort(self._ids, prompt_id)
        self._packed.setdefault(prompt_id, {})[place] = packed
        self.size += len(packed)
        while self.size > self.limit:
            last = self._ids.pop()
            self.size -= sum(map(len, self._packed.pop(last).values()))
            self._first_left_out = last

    @property
    def groups(self) -> int:
        """The number of groups that are kept."""
        return sum(map(len, self._packed.values()))

    def by_place(self) -> Iterator[tuple[str, str]]:
        """`RUN/STEP/GROUP` of each group, with its compressed details."""
        return (entry for groups in self._packed.values() for entry in groups.items())

    def written(self) -> Iterator[str]:
        """The details as a JSON object by `RUN/STEP/GROUP`, part by part."""
        yield "{"
        for number, (place, packed) in enumerate(self.by_place()):
            yield f'{"," * bool(number)}{as_json(place).decode()}:"{packed}"'
        yield "}"


class PackedPage:
    """All steps as one `Page`, which is written and compressed step by step."""

    def __init__(self) -> None:
        self.groups = 0
        self._packer, self._prompts = zlib.compressobj(), dict[str, str]()
        self._parts = [self._packer.compress(b'{"groups":[')]

    def add(self, step: Step) -> None:
        """Append the next step."""
        if step.groups:
            written = as_json(step.groups)[1:-1]
            self._parts.append(self._packer.compress(b"," * bool(self.groups) + written))
        self.groups += len(step.groups)
        self._prompts.update(step.prompts)

    def finished(self, steps: int, damaged: Sequence[str]) -> Iterator[str]:
        """The page as `packed` would return it, part by part. Nothing can be added afterwards."""
        read = {"damaged": damaged, "steps_read": steps, "steps": steps, "next": None}
        rest = as_json({"prompts": self._prompts, **read})[1:]
        self._parts += [self._packer.compress(b"]," + rest), self._packer.flush()]
        begun = b""
        for part in self._parts:
            begun += part
            whole, begun = begun[: len(begun) // 3 * 3], begun[len(begun) // 3 * 3 :]
            yield base64.b64encode(whole).decode("ascii")
        yield base64.b64encode(begun).decode("ascii")


class Exported(NamedTuple):
    """How many groups the file has, how many of them with responses, and why each step that was left out was."""

    groups: int
    with_responses: int
    damaged: list[str]


def export(material: Material, out: Path, megabytes: int) -> Exported:
    """Write the file with at most `megabytes` of responses.

    A step that cannot be read is left out with a note. Raises DataError if the file cannot be written.
    """
    summaries, responses = Summaries(material.gold, *material.references), Responses(megabytes * MIB)
    page, files, damaged = PackedPage(), material.files(), list[str]()
    for run, path in files:
        groups = read_or_note(path, damaged)
        page.add(summaries.step(groups, run))
        for group in groups:
            opened = packed(as_json(details(group, material.gold)))
            responses.add(group.prompt_id, f"{run}/{group.step}/{group.group}", opened)
    with_responses, count = responses.groups, page.groups
    left_out = (
        f"To keep this file small (--max-mb {megabytes}), it has the responses of {with_responses:,} of "
        f"{count:,} groups: those of a sample of the prompts. All votes are here."
    )
    data = {"summaries": page.finished(len(files), damaged), "details": responses.written()}
    with whole_file(out) as file:
        file.writelines(whole_page(material, [left_out] if with_responses < count else [], data))
    return Exported(count, with_responses, damaged)


def packed(data: bytes) -> str:
    """The data compressed by zlib, in base64."""
    return base64.b64encode(zlib.compress(data)).decode("ascii")
