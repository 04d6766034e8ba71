"""The page's HTML, with scripts, styles, fonts and data written into it."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from restrain_openrlhf.commands.view.source import Material

ASSETS = Path(__file__).parent / "assets"
# KaTeX is as npm has it (katex/README); the order is that in which they build on each other.
STYLES = ("katex/katex.min.css", "view.css")
OURS = ("elements", "source", "formulas", "filters", "list", "chart", "group", "page")
SCRIPTS = ("katex/katex.min.js", "katex/auto-render.min.js", *(f"{name}.js" for name in OURS))
FONT = re.compile(r"url\((fonts/[\w-]+\.woff2)\) format\(\"woff2\"\)(?:,url\([^)]*\) format\(\"\w+\"\))*")
NOTHING_ELSE = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; font-src data:"


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
