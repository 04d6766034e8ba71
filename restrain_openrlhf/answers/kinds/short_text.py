"""A short text as a response's answer, for the kinds that compare what texts mean: a tag, an announcement, a line."""

import re

OPENING, CLOSING, END_OF_THOUGHT = "<answer>", "</answer>", "</think>"
MAX_LENGTH = 2000
_ANNOUNCED = re.compile(r"\banswer(?: is\b:?|:)\**", re.IGNORECASE)
_AROUND = "*`\"' \t\r\n"
_BLANKS = re.compile(r"\s+")


def short_text(response: str) -> str | None:
    """What the last `<answer>` holds, else what "answer:" or "answer is" announces last, else the last line. Total.

    Blanks are one space each. None where that is empty or longer than MAX_LENGTH characters.
    """
    text = response.rpartition(END_OF_THOUGHT)[2]
    found = _tagged(text) or _announced(text) or _last_line(text)
    short = _BLANKS.sub(" ", found.encode("utf-8", "replace").decode()).strip(_AROUND)
    return short if 0 < len(short) <= MAX_LENGTH else None


def _tagged(text: str) -> str:
    end = text.rfind(CLOSING)
    start = text.rfind(OPENING, 0, end) if end >= 0 else -1
    return text[start + len(OPENING) : end].strip() if start >= 0 else ""


def _announced(text: str) -> str:
    """The rest of the line that announces it."""
    ends = [found.end() for found in _ANNOUNCED.finditer(text)]
    return text[ends[-1] :].strip().partition("\n")[0] if ends else ""


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]
