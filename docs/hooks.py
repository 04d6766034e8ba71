"""What mkdocs calls: turns equations into MathML, which browsers show without a script."""

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert

INLINE = re.compile(r'<span class="arithmatex">\\\((.+?)\\\)</span>', re.DOTALL)
DISPLAY = re.compile(r'<div class="arithmatex">\s*\\\[(.+?)\\\]\s*</div>', re.DOTALL)


def on_page_content(html: str, **_: Any) -> str:
    """Equations as pymdownx.arithmatex leaves them, rendered; no script is needed to read them."""
    html = INLINE.sub(lambda found: convert(unescape(found[1])), html)
    return DISPLAY.sub(lambda found: convert(unescape(found[1]), display="block"), html)
