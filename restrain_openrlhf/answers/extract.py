"""The final answer of a response: the last \\boxed{...}, else what follows a phrase that announces one."""

import re

# Part of every reference artifact's provenance: raise it when extraction or keys change.
EXTRACTOR_VERSION = "1"

BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
# `\boxed 5` stands for a box around one token.
BARE_BOX = re.compile(r"\\boxed\s+([^\s${}\\]+)")
ANNOUNCEMENT = re.compile(
    r"(?:final\s+answer\s*(?:is|:)|answer\s+is|answer\s*:|####)\s*:?\s*(?P<answer>[^\n]{1,300})", re.IGNORECASE
)
# An answer announced in words stands at the end; a bounded look keeps the search linear on hostile text.
TAIL = 2000
WRAPPERS = "$* \t\n.`"


def extract(response: str) -> str | None:
    """The final answer as written, stripped of what surrounds it; None where there is none or it is empty."""
    boxed = _last_box(response)
    found = boxed if boxed is not None else _announced(response[-TAIL:])
    answer = (found or "").strip().strip(WRAPPERS).strip()
    return answer or None


def _last_box(response: str) -> str | None:
    boxes = list(BOX.finditer(response))
    for box in reversed(boxes):
        content = _balanced(response, box.end())
        if content is not None:
            return content
    bare = BARE_BOX.findall(response)
    return bare[-1] if bare and not boxes else None


def _balanced(text: str, start: int) -> str | None:
    """From `start`, just inside an opening brace, to its closing one; None if it is never closed."""
    depth = 1
    for position in range(start, len(text)):
        escaped = text[position - 1] == "\\" and text[position - 2 : position] != "\\\\"
        if text[position] in "{}" and not escaped:
            depth += 1 if text[position] == "{" else -1
            if depth == 0:
                return text[start:position]
    return None


def _announced(tail: str) -> str | None:
    answers = [match["answer"] for match in ANNOUNCEMENT.finditer(tail)]
    return re.split(r"\.\s|\.$", answers[-1].strip())[0] if answers else None
