"""The page's HTML, with scripts, styles and fonts linked or embedded, and the JSON that its scripts read."""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from pydantic_core import to_json

from restrain_openrlhf.commands.view.source import Material

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
