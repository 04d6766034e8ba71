"""Keys of matrices: rows and cells of LaTeX's environments, or lists of rows in square brackets."""

import re
from collections.abc import Callable

from restrain_openrlhf.answers.structure import bracketed, split_top_level, unwrap_braces

MAX_BRACKETS = 3

_ENVIRONMENT = re.compile(
    r"\\begin\{(?P<name>[pbB]?matrix|smallmatrix|array)\}(?:\{[clr|\s]*\})?(?P<rows>.*?)\\end\{(?P=name)\}", re.S
)
# A row may say how much space follows it: \\[4pt].
_ROW_BREAK = re.compile(r"\\\\(?:\s*\[\s*-?[\d.]+\s*[a-z]{2}\s*\])?|\\cr(?![a-zA-Z])")
_LINE = re.compile(r"\\hline(?![a-zA-Z])")


def matrix_key(text: str, key_of: Callable[[str], str]) -> str | None:
    """The key of a matrix, with or without brackets around it; None for any other text."""
    rows = _rows(text)
    return "matrix " + ";".join("&".join(key_of(cell) for cell in row) for row in rows) if rows else None


def _rows(text: str) -> list[list[str]] | None:
    if "\\begin" not in text:
        return _rows_in_brackets(text) if text.startswith("[") else None
    found = _ENVIRONMENT.fullmatch(_bare(text))
    lines = _ROW_BREAK.split(_LINE.sub("", found["rows"])) if found else []
    return [line.split("&") for line in lines if line.strip()]


def _bare(text: str) -> str:
    """The text without brackets around it, three at most."""
    for _ in range(MAX_BRACKETS):
        around = bracketed(text)
        if not around or around.opening + around.closing not in ("()", "[]"):
            break
        text = unwrap_braces(around.inside.strip())
    return text


def _rows_in_brackets(text: str) -> list[list[str]] | None:
    """`[[1,2],[3,4]]`: two rows or more, all of one length."""
    rows = [_items(row) for row in _items(text) or ()]
    lengths = {len(row) for row in rows if row is not None}
    return [row for row in rows if row] if len(rows) > 1 and None not in rows and len(lengths) == 1 else None


def _items(text: str) -> list[str] | None:
    found = bracketed(text.strip())
    if not found or found.opening + found.closing != "[]":
        return None
    return [item.strip() for item in split_top_level(found.inside, (",",))]
