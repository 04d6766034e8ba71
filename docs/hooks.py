"""What mkdocs calls: adds the generated pages, and turns equations into MathML; browsers need no script for it."""

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from reference_pages import pages

INLINE = re.compile(r'<span class="arithmatex">\\\((.+?)\\\)</span>', re.DOTALL)
DISPLAY = re.compile(r'<div class="arithmatex">\s*\\\[(.+?)\\\]\s*</div>', re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made from the code."""
    for path, markdown in pages().items():
        files.append(File.generated(config, path, content=markdown))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Equations as pymdownx.arithmatex leaves them, rendered; no script is needed to read them."""
    html = INLINE.sub(lambda found: convert(unescape(found[1])), html)
    return DISPLAY.sub(lambda found: convert(unescape(found[1]), display="block"), html)
