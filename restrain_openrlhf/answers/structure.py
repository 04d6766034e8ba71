"""Brackets and separators of an answer, read without parsing what stands between them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

OPENING = {"(": 1, "[": 1, "{": 1}
CLOSING = {")": 1, "]": 1, "}": 1}


@dataclass(frozen=True)
class Bracketed:
    """A text that is one bracket from end to end; intervals may open and close differently."""

    opening: str
    inside: str
    closing: str


def split_top_level(text: str, separators: Sequence[str]) -> list[str]:
    """Parts between separators that stand in no bracket; a separator that is a command ends where its name does."""
    parts, depth, start, position = [], 0, 0, 0
    while position < len(text):
        found = next((s for s in separators if text.startswith(s, position)), None) if depth == 0 else None
        if found and not (found[-1].isalpha() and text[position + len(found) : position + len(found) + 1].isalpha()):
            parts.append(text[start:position])
            start = position = position + len(found)
            continue
        depth += OPENING.get(text[position], 0) - CLOSING.get(text[position], 0)
        depth = max(depth, 0)
        position += 1
    return [*parts, text[start:]]


def bracketed(text: str) -> Bracketed | None:
    """The whole text as one bracket: ( ), [ ], mixed, \\{ \\}, or plain braces around several items."""
    if text.startswith("\\{") and text.endswith("\\}") and _closes_at_end(text.replace("\\{", "{").replace("\\}", "}")):
        return Bracketed("\\{", text[2:-2], "\\}")
    if text[:1] == "{" and text[-1:] == "}" and _closes_at_end(text) and len(split_top_level(text[1:-1], (",",))) > 1:
        return Bracketed("\\{", text[1:-1], "\\}")
    if text[:1] in ("(", "[") and text[-1:] in (")", "]") and _closes_at_end(text):
        return Bracketed(text[0], text[1:-1], text[-1])
    return None


def _closes_at_end(text: str) -> bool:
    """Whether the first bracket is closed by the last character."""
    depth = 0
    for position, character in enumerate(text):
        depth += OPENING.get(character, 0) - CLOSING.get(character, 0)
        if depth == 0:
            return position == len(text) - 1
    return False


def unwrap_braces(text: str) -> str:
    """`{5}` as `5`; a set keeps its braces."""
    while text[:1] == "{" and text[-1:] == "}" and _closes_at_end(text):
        inside = text[1:-1].strip()
        if not inside or len(split_top_level(inside, (",", ";"))) > 1 or re.search(r"\\choose(?![a-zA-Z])", inside):
            return text
        text = inside
    return text
