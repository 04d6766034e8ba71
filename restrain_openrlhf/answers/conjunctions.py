"""Reads "and" and "or", in words or signs, as what stands between the items of a list."""

import re

# Braces are what is left of a font's command; the comma before "and" goes with it.
_WORD = re.compile(r"\s*(?:,\s*)?\{?\s*\b(?P<word>and|or)\b\s*\}?\s*")
_BETWEEN_ITEMS = re.compile(r"[\d})\]a-zA-Z!'][\s,]*\{?\s*\b(?:and|or)\b\s*\}?\s*[-+.\d\\({\[|a-zA-Z]")
_PAIR = re.compile(r"^\s*(?:both|either)\s+")
_SIGN = re.compile(r"\\(?P<sign>lor|vee|land|wedge)(?![a-zA-Z])")
_RELATION = re.compile(r"[=<>≈]|\\(?:le|ge|ne|in|approx)(?![a-zA-Z])")
_INEQUALITY = re.compile(r"[<>]|\\(?:le|ge)(?![a-zA-Z])")
_OR = re.compile(r"\s*(?:,\s*)?(?:\\(?:lor|vee)(?![a-zA-Z])|\{?\s*\bor\b\s*\}?)\s*")


def separator(words: str, around: str) -> str | None:
    """What a text that only says "and" or "or" becomes in the formula `around` it; None for other words.

    Between inequalities the two differ.
    """
    found = _WORD.fullmatch(f" {words} ")
    if not found:
        return None
    return rf" \l{found['word']} " if _INEQUALITY.search(around) else " , "


def with_commas(text: str) -> str:
    """`6 and 8` as `6,8`. The signs of logic separate relations alone: p or q is a formula, x=1 or x=2 a list."""
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
    """The inequalities of `x < 1 or x > 2`; of any other text itself alone."""
    parts = _OR.split(text)
    return parts if all(_INEQUALITY.search(part) for part in parts) else [text]
