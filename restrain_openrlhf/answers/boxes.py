"""Finds \\boxed{...} and \\fbox{...}: the last one, or the last run of several that together are the answer."""

import re
from dataclasses import dataclass

# Row breaks and escaped braces are matched first, so that they are passed over.
_MARK = re.compile(r"\\+(?:boxed|fbox)\s*\{|\\\\|\\[{}]|[{}]")
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
    boxes, opened = _outer_boxes(text)
    if not boxes:
        bare = _BARE_BOX.findall(text)
        return bare[-1] if bare and not opened else None
    run = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        gap = text[box.end : run[0].start]
        if not _JOINT.fullmatch(gap) or not re.search(r",|;|and|or", gap):
            break
        run.insert(0, box)
    return ", ".join(dict.fromkeys(box.content.strip() for box in run))


def _outer_boxes(text: str) -> tuple[list[Box], bool]:
    """Boxes that close and stand in no other such box, in order, and whether any box was opened; one pass."""
    closed: list[Box] = []
    open_braces: list[re.Match[str]] = []
    opened = False
    for mark in _MARK.finditer(text):
        if mark[0].endswith("{") and mark[0] != "\\{":
            open_braces.append(mark)
            opened = opened or len(mark[0]) > 1
        elif mark[0] == "}" and open_braces:
            start = open_braces.pop()
            if len(start[0]) > 1:
                closed.append(Box(text[start.end() : mark.start()], start.start(), mark.end()))
    outer: list[Box] = []
    for box in sorted(closed, key=lambda box: box.start):
        if not outer or box.start >= outer[-1].end:
            outer.append(box)
    return outer, opened
