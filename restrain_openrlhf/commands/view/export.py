"""The page as one file: every group's vote, and the responses of as many prompts as the file may hold."""

import base64
import hashlib
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from pydantic_core import to_json

from restrain_openrlhf.commands.view.source import Material
from restrain_openrlhf.commands.view.summary import Summaries, details
from restrain_openrlhf.data.outputs import whole_file
from restrain_openrlhf.records.kept import read_kept

ASSETS = Path(__file__).parent / "assets"
# KaTeX is as npm has it (katex/README); the order is that in which they build on each other.
STYLES = ("katex/katex.min.css", "view.css")
OURS = ("elements", "source", "formulas", "filters", "list", "chart", "group", "page")
SCRIPTS = ("katex/katex.min.js", "katex/auto-render.min.js", *(f"{name}.js" for name in OURS))
FONT = re.compile(r"url\((fonts/[\w-]+\.woff2)\) format\(\"woff2\"\)(?:,url\([^)]*\) format\(\"\w+\"\))*")
NOTHING_ELSE = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; font-src data:"
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
    shown, prompts = [], dict[str, str]()
    for group in read_kept(material.run):
        shown.append(summaries.summary(group))
        prompts[group.prompt_id] = group.prompt
        opened = packed(as_json(details(group, material.gold)))
        responses.add(group.prompt_id, f"{group.step}/{group.group}", opened)
    places = responses.by_place()
    left_out = (
        f"To keep this file small (--max-mb {megabytes}), it has the responses of {len(places):,} of "
        f"{len(shown):,} groups: those of a sample of the prompts. All votes are here."
    )
    page = {"groups": shown, "prompts": prompts, "steps": len({group.step for group in shown})}
    data = {"summaries": packed(as_json(page)), "details": as_json(places).decode()}
    with whole_file(out) as file:
        file.write(whole_page(material, [left_out] if len(places) < len(shown) else [], data))
    return len(shown), len(places)


def packed(data: bytes) -> str:
    """Compressed by zlib, in base64."""
    return base64.b64encode(zlib.compress(data)).decode("ascii")


def as_json(data: Any) -> bytes:
    """Dataclasses, mappings and sequences as JSON; NaN and infinities, which it has no word for, arrive as text."""
    return to_json(data, inf_nan_mode="strings")


def whole_page(material: Material, notes: Sequence[str], data: Mapping[str, str]) -> str:
    """The page with everything in it; `data` are blocks of text by id, which hold no `<`.

    Its policy lets exactly these scripts and styles in, by their digests, and no connection to anywhere.
    """
    styles = [FONT.sub(_embedded, _text(path)) for path in STYLES]
    scripts = [_text(path) for path in SCRIPTS]
    allowed = f"script-src {' '.join(map(_digest, scripts))}; style-src {' '.join(map(_digest, styles))}"
    block = Markup('<script type="application/json" id="{}">{}</script>')
    return (
        Environment(loader=FileSystemLoader(ASSETS), autoescape=True)
        .get_template("page.html.j2")
        .render(
            name=material.run.resolve().name,
            notes=[*material.notes, *notes],
            gold=bool(material.gold.answers),
            policy=f"{NOTHING_ELSE}; {allowed}",
            styles=[Markup("<style>{}</style>").format(Markup(text)) for text in styles],
            scripts=[Markup("<script>{}</script>").format(Markup(text)) for text in scripts],
            data=[block.format(key, Markup(text)) for key, text in data.items()],
        )
    )


def _text(path: str) -> str:
    return (ASSETS / path).read_text(encoding="utf-8")


def _embedded(found: re.Match[str]) -> str:
    """A font as a data URL, without the older forms of it."""
    font = base64.b64encode((ASSETS / "katex" / found[1]).read_bytes()).decode()
    return f'url(data:font/woff2;base64,{font}) format("woff2")'


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
