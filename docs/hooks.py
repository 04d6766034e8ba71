"""What mkdocs calls: lists the options of all commands, and turns equations into MathML, which needs no script."""

import re
import sys
from html import unescape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

sys.path.append(str(Path(__file__).parent))
from reference_pages import COMMANDS_PAGE, options_of_commands

INLINE = re.compile(r'<span class="arithmatex">\\\((.+?)\\\)</span>', re.DOTALL)
DISPLAY = re.compile(r'<div class="arithmatex">\s*\\\[(.+?)\\\]\s*</div>', re.DOTALL)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page of commands with what `--help` prints, which the page in the repository leaves out."""
    return f"{markdown}\n{options_of_commands()}" if page.file.src_uri == COMMANDS_PAGE else markdown


def on_page_content(html: str, **_: Any) -> str:
    """Equations as pymdownx.arithmatex leaves them, rendered; no script is needed to read them."""
    html = INLINE.sub(lambda found: convert(unescape(found[1])), html)
    return DISPLAY.sub(lambda found: convert(unescape(found[1]), display="block"), html)
