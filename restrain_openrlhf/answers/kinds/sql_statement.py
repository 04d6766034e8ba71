"""Reads SQL as text: finds the last query of a response, and whether its outermost SELECT orders its rows."""

import re
from collections.abc import Iterator
from itertools import pairwise

# SQLite's tokens. A quote or comment that is never closed ends with the text, as in SQLite.
_TOKEN = re.compile(
    r"""
      (?P<quoted> '(?:[^']++|'')*+(?:'|\Z) | "(?:[^"]++|"")*+(?:"|\Z) | `[^`]*+(?:`|\Z) | \[[^\]]*+(?:\]|\Z) )
    | (?P<comment> --[^\n]*+ | /\*.*?(?:\*/|\Z) )
    | (?P<word> \w++ )
    | (?P<mark> [();] )
    | [^\w'"`\[();/-]++ | .
    """,
    re.VERBOSE | re.DOTALL,
)
# The start of a query outside a fence: on a new line, or after one of these marks. Capitalised "Select" and "With" are
# prose, and WITH must be followed by a name and AS.
_START = re.compile(
    r"""(?:^|[:;`>*])[ \t]*+
        (SELECT\b | select\b
        | (?:WITH|with)\s{1,9}+
          (?=(?:(?:RECURSIVE|recursive)\s{1,9})?["\w]{1,64}\s{0,9}(?:\([^()]{0,500}\)\s{0,9})?[Aa][Ss]\b))
    """,
    re.VERBOSE | re.MULTILINE,
)
_BLANK_LINE = re.compile(r"\n[ \t\r]*+\n")
_TAG = re.compile(r"[ \t]*+(\w*)")
SQL_TAGS = frozenset({"sql", "sqlite", "sqlite3", "mysql", "postgres", "postgresql", "psql"})
FIRST_WORDS = frozenset({"select", "with"})
MAX_LENGTH = 20_000


def last_query(response: str) -> str | None:
    """The query of the last fenced block of SQL, or the last bare one.

    None if that block has no query, or the query is longer than MAX_LENGTH characters. Accepts any text.
    """
    found = next(_fenced_from_the_end(response), None) or _last_bare(response)
    query = found.strip().rstrip("; \t\r\n") if found else ""
    return query if 0 < len(query) <= MAX_LENGTH and is_query(query) else None


def is_query(text: str) -> bool:
    """Whether the first word, after comments, is SELECT or WITH."""
    return next((word for word, _ in _words(text)), "") in FIRST_WORDS


def orders_rows(query: str) -> bool:
    """Whether ORDER BY is outside all brackets, where it orders the whole query, a UNION included.

    In a subquery, a common table expression, a window or an aggregate it is inside brackets.
    """
    outer = [word for word, depth in _words(query) if depth == 0]
    return ("order", "by") in pairwise(outer)


def _words(text: str) -> Iterator[tuple[str, int]]:
    """Each word in lower case with its depth in brackets. Words in strings and comments are skipped."""
    depth = 0
    for token in _TOKEN.finditer(text):
        match token["mark"]:
            case "(":
                depth += 1
            case ")":
                depth -= 1
        if token["word"]:
            yield token["word"].lower(), depth


def _fenced_from_the_end(text: str) -> Iterator[str]:
    """Blocks marked as SQL, or unmarked ones that begin as a query, the last first.

    An unclosed block ends with the text.
    """
    for block in reversed(text.split("```")[1::2]):
        if block.isspace() or not block:
            continue
        tag = _TAG.match(block)
        word = tag[1].lower() if tag else ""
        if tag and word in SQL_TAGS:
            yield block[tag.end() :]
        elif word in ("", *FIRST_WORDS) and is_query(block[:MAX_LENGTH]):
            yield block


def _last_bare(text: str) -> str | None:
    """The last query of the last paragraph that has one."""
    for paragraph in reversed(_BLANK_LINE.split(text)):
        query, place = None, 0
        while start := _START.search(paragraph, place):
            place = _end(paragraph, start)
            query = paragraph[start.start(1) : place]
        if query:
            return query
    return None


def _end(paragraph: str, start: re.Match[str]) -> int:
    """The end of a query: at the closing backtick if it began with one, else at its semicolon, else at the end.

    The search ends one character beyond MAX_LENGTH.
    """
    first, last = start.start(1), min(len(paragraph), start.start(1) + MAX_LENGTH + 1)
    if start[0].startswith("`"):
        closing = paragraph.find("`", first, last)
        return closing if closing >= 0 else last
    ends = (token.start() for token in _TOKEN.finditer(paragraph, first, last) if token["mark"] == ";")
    return next(ends, last)
