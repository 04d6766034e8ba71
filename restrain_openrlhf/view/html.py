"""The page's HTML: its own scripts, styles and fonts, linked on the server or written into the one file."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

ASSETS = Path(__file__).parent / "assets"
# KaTeX is as npm has it (katex/README); the order is that in which they build on each other.
STYLES = ("katex/katex.min.css", "view.css")
OURS = ("elements", "source", "formulas", "filters", "list", "chart", "group", "page")
SCRIPTS = ("katex/katex.min.js", "katex/auto-render.min.js", *(f"{name}.js" for name in OURS))
FONT = re.compile(r"url\((fonts/[\w-]+\.woff2)\) format\(\"woff2\"\)(?:,url\([^)]*\) format\(\"\w+\"\))*")
NOTHING_ELSE = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:"
SERVED_POLICY = f"{NOTHING_ELSE}; script-src 'self'; style-src 'self'; font-src 'self'; connect-src 'self'"


def served_page(name: str, notes: Sequence[str], has_gold: bool) -> str:
    """The page with links to the server's /assets."""
    styles = [Markup('<link rel="stylesheet" href="assets/{}">').format(path) for path in STYLES]
    scripts = [Markup('<script src="assets/{}"></script>').format(path) for path in SCRIPTS]
    return _page(name, notes, has_gold, SERVED_POLICY, styles, scripts, {})


def whole_page(name: str, notes: Sequence[str], has_gold: bool, data: Mapping[str, str]) -> str:
    """The page with everything in it; `data` are blocks of text by id, which hold no `<`.

    Its policy lets exactly these scripts and styles in, by their digests, and no connection to anywhere.
    """
    styles, scripts = [_with_fonts(path) for path in STYLES], [_text(path) for path in SCRIPTS]
    policy = "; ".join(
        [
            NOTHING_ELSE,
            f"script-src {' '.join(map(_digest, scripts))}",
            f"style-src {' '.join(map(_digest, styles))}",
            "font-src data:",
        ]
    )
    return _page(
        name,
        notes,
        has_gold,
        policy,
        [Markup("<style>{}</style>").format(Markup(text)) for text in styles],
        [Markup("<script>{}</script>").format(Markup(text)) for text in scripts],
        data,
    )


def _page(
    name: str,
    notes: Sequence[str],
    has_gold: bool,
    policy: str,
    styles: Sequence[Markup],
    scripts: Sequence[Markup],
    data: Mapping[str, str],
) -> str:
    block = Markup('<script type="application/json" id="{}">{}</script>')
    blocks = [block.format(key, Markup(text)) for key, text in data.items()]
    environment = Environment(loader=FileSystemLoader(ASSETS), autoescape=True)
    return environment.get_template("page.html.j2").render(
        name=name, notes=notes, gold=has_gold, policy=policy, styles=styles, scripts=scripts, data=blocks
    )


def _text(path: str) -> str:
    return (ASSETS / path).read_text(encoding="utf-8")


def _with_fonts(path: str) -> str:
    """The style with each font as a data URL, and without the older forms of it."""
    return FONT.sub(lambda found: f'url({_data_url(ASSETS / "katex" / found[1])}) format("woff2")', _text(path))


def _data_url(font: Path) -> str:
    return "data:font/woff2;base64," + base64.b64encode(font.read_bytes()).decode()


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
