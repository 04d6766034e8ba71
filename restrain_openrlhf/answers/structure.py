"""Reads brackets, separators and conjunctions of an answer, without parsing what is between them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Braces are left over from font commands. A comma before "and" belongs to it.
_WORD = re.compile(r"\s*(?:,\s*)?\{?\s*\b(?P<word>and|or)\b\s*\}?\s*")
_BETWEEN_ITEMS = re.compile(r"[\d})\]a-zA-Z!'][\s,]*\{?\s*\b(?:and|or)\b\s*\}?\s*[-+.\d\\({\[|a-zA-Z]")
_PAIR = re.compile(r"^\s*(?:both|either)\s+")
_SIGN = re.compile(r"\\(?P<sign>lor|vee|land|wedge)(?![a-zA-Z])")
_RELATION = re.compile(r"[=<>≈]|\\(?:le|ge|ne|in|approx)(?![a-zA-Z])")
_INEQUALITY = re.compile(r"[<>]|\\(?:le|ge)(?![a-zA-Z])")
_OR = re.compile(r"\s*(?:,\s*)?(?:\\(?:lor|vee)(?![a-zA-Z])|\{?\s*\bor\b\s*\}?)\s*")


@dataclass(frozen=True)
class Bracketed:
    """A text that is one bracket from end to end; intervals may open and close differently."""

    opening: str
    inside: str
    closing: str


def split_top_level(text: str, separators: Sequence[str]) -> list[str]:
    """The parts between separators outside brackets. A separator that is a LaTeX command must be a whole one."""
    parts, start = [], 0
    for place in outside_brackets(text):
        found = next((each for each in separators if text.startswith(each, place)), "") if place >= start else ""
        end = place + len(found)
        if found and not (found[-1].isalpha() and text[end : end + 1].isalpha()):
            parts.append(text[start:place])
            start = end
    return [*parts, text[start:]]


def outside_brackets(text: str) -> Iterator[int]:
    """The places that are inside no bracket, those of opening brackets included."""
    depth = 0
    for place, character in enumerate(text):
        if depth == 0:
            yield place
        depth = max(depth + (character in "([{") - (character in ")]}"), 0)


def bracketed(text: str) -> Bracketed | None:
    """The text as one bracket: ( ), [ ], mixed, \\{ \\}, or plain braces around several items; None otherwise."""
    if text.startswith("\\{") and text.endswith("\\}") and _closes_at_end(text.replace("\\{", "{").replace("\\}", "}")):
        return Bracketed("\\{", text[2:-2], "\\}")
    if text[:1] == "{" and text[-1:] == "}" and _closes_at_end(text) and len(split_top_level(text[1:-1], (",",))) > 1:
        return Bracketed("\\{", text[1:-1], "\\}")
    if text[:1] in ("(", "[") and text[-1:] in (")", "]") and _closes_at_end(text):
        return Bracketed(text[0], text[1:-1], text[-1])
    return None


def bracket_kind(brackets: str) -> str:
    """The name of a pair of brackets in a key: `()`, `[]`, and the mixed pairs of half-open intervals."""
    return {"()": "tuple", "[]": "closed"}.get(brackets, f"half {brackets}")


def _closes_at_end(text: str) -> bool:
    """Whether the last character closes the first bracket."""
    depth = 0
    for position, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
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


def separator(words: str, around: str) -> str | None:
    """The separator for a text "and" or "or" in the formula `around` it; None for other words.

    It is a comma, or between inequalities the sign of logic, because there "and" and "or" differ.
    """
    found = _WORD.fullmatch(f" {words} ")
    if not found:
        return None
    return rf" \l{found['word']} " if _INEQUALITY.search(around) else " , "


def with_commas(text: str) -> str:
    """`6 and 8` as `6,8`. Signs of logic separate only relations: p ∨ q is a formula, but x=1 ∨ x=2 a list."""
    if _BETWEEN_ITEMS.search(text):
        text = _WORD.sub(",", _PAIR.sub("", text))
    elif _PAIR.match(text) and "," in text:
        text = _PAIR.sub("", text)
    text = text.replace("\\&", ",")
    if not _SIGN.search(text):
        return text
    parts = _SIGN.split(text)[::2]
    return ",".join(parts) if all(_RELATION.search(part) for part in parts) else text


def alternatives(text: str) -> list[str]:
    """The inequalities of `x < 1 or x > 2`; any other text is its only item."""
    parts = _OR.split(text)
    return parts if all(_INEQUALITY.search(part) for part in parts) else [text]
