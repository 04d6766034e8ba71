"""A canonical key for an answer: two answers are equal if and only if their keys are (docs/concepts/answers.md)."""

import re
from collections.abc import Sequence
from functools import lru_cache

from restrain_openrlhf.answers.clean import clean, split_conjunctions
from restrain_openrlhf.answers.expression import NotAnExpression
from restrain_openrlhf.answers.parser import parse
from restrain_openrlhf.answers.relations import relation_key
from restrain_openrlhf.answers.residual import residual_key
from restrain_openrlhf.answers.structure import Bracketed, bracketed, split_top_level, unwrap_braces
from restrain_openrlhf.answers.value import fingerprints, values

MAX_LENGTH = 4000
MAX_NESTING = 12

_MATRIX = re.compile(
    r"\\begin\{(?:[pbB]?matrix|array)\}(?:\{[clr|]*\})?(?P<rows>.*?)\\end\{(?:[pbB]?matrix|array)\}", re.S
)
_LETTER = re.compile(r"\(?\s*([A-Z])\s*\)?")
_BASE = re.compile(r"(\d+)\s*_\s*\{?(\d+)\}?")


@lru_cache(maxsize=100_000)
def canonical_key(answer: str) -> str:
    """The key of one answer as a model wrote it: the same in every process and run."""
    text = answer if len(answer) > MAX_LENGTH else clean(answer)
    return _text_key(text) if len(text) > MAX_LENGTH else key_of(text, 0)


def classes(answers: Sequence[str | None]) -> list[int | None]:
    """Each answer's class, numbered in order of first appearance; None for a missing answer."""
    numbers: dict[str, int] = {}
    return [None if answer is None else numbers.setdefault(canonical_key(answer), len(numbers)) for answer in answers]


def key_of(text: str, depth: int) -> str:
    """The key of a cleaned text, the first of the forms below that it has; every text has a key as text."""
    text = unwrap_braces(text.strip())
    if depth > MAX_NESTING:
        return _text_key(text)
    for form in FORMS:
        key = form(text, depth)
        if key is not None:
            return key
    return _text_key(text)


def _choice(text: str, _depth: int) -> str | None:
    letter = _LETTER.fullmatch(text)
    return f"letter {letter[1]}" if letter else None


def _based_number(text: str, _depth: int) -> str | None:
    found = _BASE.fullmatch(text)
    return f"base {int(found[2])} {int(found[1])}" if found else None


def _matrix(text: str, depth: int) -> str | None:
    found = _MATRIX.fullmatch(text)
    if not found:
        return None
    rows = [row for row in re.split(r"\\\\|\\cr", found["rows"]) if row.strip()]
    return "matrix " + ";".join("&".join(key_of(cell, depth + 1) for cell in row.split("&")) for row in rows)


def _union(text: str, depth: int) -> str | None:
    parts = split_top_level(text, (r"\cup",))
    return "union " + " u ".join(sorted(key_of(part, depth + 1) for part in parts)) if len(parts) > 1 else None


def _list(text: str, depth: int) -> str | None:
    """Bare lists are unordered; items named apart (k = 0, n = 1) are sorted by name and keep it."""
    parts = split_top_level(split_conjunctions(text), (",", ";"))
    if len(parts) < 2 or not all(part.strip() for part in parts):  # noqa: PLR2004 - a list has two items
        return None
    names = [part.split("=")[0].strip() for part in parts if part.count("=") == 1]
    if len(names) == len(parts) and len(set(names)) == len(names):
        named = sorted((re.sub(r"\s", "", name), part.split("=")[1]) for name, part in zip(names, parts, strict=True))
        return "record " + ", ".join(f"{name}={key_of(value, depth + 1)}" for name, value in named)
    return "list " + ", ".join(sorted(_item_keys(parts, depth)))


def _item_keys(parts: list[str], depth: int) -> list[str]:
    """Keys of the items; one with a plus-minus sign stands for two."""
    return [key for part in parts for key in (_plus_minus_keys(part, depth) or [key_of(part, depth + 1)])]


def _plus_minus_keys(text: str, depth: int) -> list[str] | None:
    if not re.search(r"\\(?:pm|mp)(?![a-zA-Z])", text):
        return None
    name, equals, rest = text.rpartition("=")
    body = rest if equals and "=" not in name else text
    return [key for sign in (1, -1) if (key := _number_key(body, sign))] or None


def _plus_minus(text: str, depth: int) -> str | None:
    keys = _plus_minus_keys(text, depth)
    return "list " + ", ".join(sorted(keys)) if keys else None


def _brackets(text: str, depth: int) -> str | None:
    """Tuples and intervals keep their order and their kind of bracket; sets are lists; one item is just itself."""
    found = bracketed(text)
    if found is None:
        return None
    items = split_top_level(found.inside, (",", ";"))
    if len(items) == 1:
        return None
    if found.opening == "\\{":
        return _list(found.inside, depth)
    if not all(item.strip() for item in items):
        return None
    return f"{_kind(found)} " + ", ".join(key_of(item, depth + 1) for item in items)


def _kind(found: Bracketed) -> str:
    return {"()": "tuple", "[]": "closed"}.get(found.opening + found.closing, f"half {found.opening}{found.closing}")


def _single_set(text: str, depth: int) -> str | None:
    found = bracketed(text)
    return key_of(found.inside, depth + 1) if found and found.opening == "\\{" else None


def _relation(text: str, depth: int) -> str | None:
    return relation_key(text, lambda part: key_of(part, depth + 1))


def _infinite(text: str, _depth: int) -> str | None:
    found = re.fullmatch(r"([-+]?)\s*\\infty", text)
    return f"{'-' if found[1] == '-' else '+'}infinity" if found else None


def _number(text: str, _depth: int) -> str | None:
    return _number_key(text, 1)


def _number_key(text: str, plus_minus: int) -> str | None:
    try:
        return "value " + " | ".join(fingerprints(values(parse(text, plus_minus))))
    except NotAnExpression:
        return None


def _residual(text: str, depth: int) -> str | None:
    """An answer, or one side of an equation, by latex2sympy2; parts deeper inside are not worth a process's time."""
    return residual_key(text) if depth <= 1 else None


FORMS = (
    _choice,
    _based_number,
    _matrix,
    _infinite,
    _union,
    _brackets,
    _list,
    _relation,
    _single_set,
    _plus_minus,
    _number,
    _residual,
)


def _text_key(text: str) -> str:
    """Words: without case, wrappers and repeated spaces. Anything else keeps its case and loses its spaces."""
    bare = text.strip(" $().,`'\"")
    if re.fullmatch(r"[A-Za-z][A-Za-z\s,.'-]*", bare):
        return "words " + " ".join(bare.casefold().split())
    return "text " + "".join(bare.split())
