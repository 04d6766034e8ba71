"""The canonical key of an answer: answers are equal if and only if their keys are (docs/concepts/answers.md)."""

import re
from collections.abc import Sequence
from functools import lru_cache

from restrain_openrlhf.answers.clean import clean
from restrain_openrlhf.answers.kind import number_classes
from restrain_openrlhf.answers.lists import list_key, matrix_key, union_key, unordered
from restrain_openrlhf.answers.plain_text import is_plain, is_statement
from restrain_openrlhf.answers.relations import KeyOf, assignment, relation_key
from restrain_openrlhf.answers.structure import Bracketed, bracket_kind, bracketed, split_top_level, unwrap_braces
from restrain_openrlhf.answers.value import value_key, values_of

MAX_LENGTH = 4000
MAX_NESTING = 12

_CASES = re.compile(r"\\begin\{cases\}(?P<rows>.*?)\\end\{cases\}", re.S)
_LETTER = re.compile(r"\(?\s*([A-Z])\s*\)?")
_BASE = re.compile(r"(\d+)\s*_\s*\{?(\d+)\}?")


# Cached, because steps visit prompts again and rollouts repeat answers.
@lru_cache(maxsize=100_000)
def canonical_key(answer: str) -> str:
    """The key of an answer as a model wrote it, the same in every process and run."""
    if len(answer) > MAX_LENGTH or is_statement(answer):
        return _text_key(answer)
    text = clean(answer)
    return _text_key(text) if len(text) > MAX_LENGTH else _key(text, 0)


def classes(answers: Sequence[str | None]) -> list[int | None]:
    """Each answer's class, numbered in order of first appearance; None for a missing answer."""
    return number_classes([None if answer is None else canonical_key(answer) for answer in answers])


def _key(text: str, depth: int) -> str:
    """The key of a cleaned text, by the first of FORMS that applies; a text with none of them gets a text key."""
    text = unwrap_braces(text.strip())
    if depth > MAX_NESTING:
        return _text_key(text)
    for form in FORMS:
        key = form(text, lambda part: _key(part, depth + 1))
        if key is not None:
            return key
    return _text_key(text)


def _choice(text: str, _key_of: KeyOf) -> str | None:
    letter = _LETTER.fullmatch(text)
    return f"letter {letter[1]}" if letter else None


def _based_number(text: str, _key_of: KeyOf) -> str | None:
    found = _BASE.fullmatch(text)
    return f"base {int(found[2])} {int(found[1])}" if found else None


def _cases(text: str, key_of: KeyOf) -> str | None:
    """Equations one below the other are a list. The branches of a function are compared as text."""
    found = _CASES.fullmatch(text)
    rows = [row for row in found["rows"].split(r"\\") if row.strip()] if found else []
    are_equations = all("=" in row and len(split_top_level(row.strip(" ,;"), (",", ";", "&"))) == 1 for row in rows)
    return key_of(", ".join(row.strip(" ,;") for row in rows)) if rows and are_equations else None


def _list(text: str, key_of: KeyOf) -> str | None:
    return list_key(text, key_of, lambda part: _plus_minus_keys(part) or [key_of(part)])


def _plus_minus_keys(text: str) -> list[str] | None:
    """The keys of the two numbers that a number with ± stands for; None for any other text."""
    if not re.search(r"\\(?:pm|mp)(?![a-zA-Z])", text):
        return None
    named = assignment(text)
    body = named.value if named else text
    return [key for sign in (1, -1) if (key := _number_key(body, sign))] or None


def _plus_minus(text: str, _key_of: KeyOf) -> str | None:
    keys = _plus_minus_keys(text)
    return unordered(keys) if keys else None


def _brackets(text: str, key_of: KeyOf) -> str | None:
    """The key of a tuple or interval, which keeps its order and kind of bracket. Sets are lists."""
    found = bracketed(text)
    if found is None:
        return None
    items = split_top_level(found.inside, (",", ";"))
    if len(items) == 1:
        return None
    if found.opening == "\\{" or _are_tuples(found, items):
        return _list(found.inside, key_of)
    if not all(item.strip() for item in items):
        return None
    return f"{bracket_kind(found.opening + found.closing)} " + ", ".join(map(key_of, items))


def _are_tuples(found: Bracketed, items: list[str]) -> bool:
    """Whether it is a list of tuples, such as `[(1,2),(3,4)]`: the bounds of an interval are no tuples."""
    insides = [bracketed(item.strip()) for item in items]
    return found.opening + found.closing == "[]" and all(
        inside and inside.opening == "(" and len(split_top_level(inside.inside, (",",))) > 1 for inside in insides
    )


def _single_set(text: str, key_of: KeyOf) -> str | None:
    found = bracketed(text)
    return key_of(found.inside) if found and found.opening == "\\{" else None


def _infinite(text: str, _key_of: KeyOf) -> str | None:
    found = re.fullmatch(r"([-+]?)\s*\\infty", text)
    return f"{'-' if found[1] == '-' else '+'}infinity" if found else None


def _plain(text: str, _key_of: KeyOf) -> str | None:
    return _text_key(text) if is_plain(text) else None


def _number(text: str, _key_of: KeyOf) -> str | None:
    return _number_key(text, 1)


def _number_key(text: str, plus_minus: int) -> str | None:
    found = values_of(text, plus_minus)
    return value_key(found) if found else None


FORMS = (
    _choice,
    _based_number,
    matrix_key,
    _cases,
    _infinite,
    union_key,
    _brackets,
    _list,
    relation_key,
    _single_set,
    _plus_minus,
    _plain,
    _number,
)


def _text_key(text: str) -> str:
    """The key as text. Words are compared without case, wrappers and repeated spaces; other text without spaces."""
    bare = text.strip(" $().,`'\"")
    if re.fullmatch(r"[A-Za-z][A-Za-z\s,.'-]*[!?]*", bare):
        return "words " + " ".join(bare.rstrip("!?").casefold().split())
    return "text " + "".join(bare.split())
