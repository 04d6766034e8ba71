"""Finds \\boxed{...} and \\fbox{...}: the last one, or the last run of several that together are the answer."""

import re
from dataclasses import dataclass

_BOX = re.compile(r"\\+(?:boxed|fbox)\s*\{")
# `\boxed 5` stands for a box around one token.
_BARE_BOX = re.compile(r"\\boxed\s+([^\s${}\\]+)")
# Between boxes that belong together: commas, "and", spacing, ends and starts of formulas.
_JOINT = re.compile(r"(?:[\s,;$]|\\quad|\\qquad|\\[()\[\]]|\\text\s*\{\s*(?:and|or)\s*\}|\band\b|\bor\b)*")


@dataclass(frozen=True)
class Box:
    """What stands in a box, and from where to where the box reaches in the text."""

    content: str
    start: int
    end: int


def last_boxes(text: str) -> str | None:
    """The content of the last box, joined by commas with boxes right before it; None without a box that closes."""
    boxes = [box for match in _BOX.finditer(text) if (box := _closed(text, match)) is not None]
    # A box within a box is part of the outer one.
    boxes = [box for box in boxes if not any(other.start < box.start and box.end <= other.end for other in boxes[-50:])]
    if not boxes:
        bare = _BARE_BOX.findall(text)
        return bare[-1] if bare and not _BOX.search(text) else None
    run = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        gap = text[box.end : run[0].start]
        if not _JOINT.fullmatch(gap) or not re.search(r",|;|and|or", gap):
            break
        run.insert(0, box)
    return ", ".join(dict.fromkeys(box.content.strip() for box in run))


def _closed(text: str, match: re.Match[str]) -> Box | None:
    """The box that opens at `match`; None if its brace is never closed. Escaped braces do not count."""
    depth, position = 1, match.end()
    for brace in _BRACE.finditer(text, position, position + MAX_BOX):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return Box(text[match.end() : brace.start()], match.start(), brace.end())
    return None


# Row breaks and escaped braces are matched first, so that they are passed over.
_BRACE = re.compile(r"\\\\|\\[{}]|[{}]")
MAX_BOX = 20_000
