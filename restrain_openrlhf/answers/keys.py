"""The canonical key of an answer: answers are equal if and only if their keys are (docs/concepts/answers.md).

A key is that of the first of FORMS that applies; then follow the keys of lists, unions and matrices: items with or
without names, joined inequalities, rows of cells.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

from restrain_openrlhf.answers.clean import clean
from restrain_openrlhf.answers.kind import number_classes
from restrain_openrlhf.answers.parser import DECORATIONS, NotAnExpression, parse
from restrain_openrlhf.answers.plain_text import is_plain, is_statement
from restrain_openrlhf.answers.relations import (
    MEMBERSHIP,
    Assignment,
    KeyOf,
    are_disjoint_rays,
    assignment,
    relation_key,
    sides_of,
    top_level_signs,
)
from restrain_openrlhf.answers.residual import residual_key
from restrain_openrlhf.answers.structure import (
    Bracketed,
    alternatives,
    bracket_kind,
    bracketed,
    split_top_level,
    unwrap_braces,
    with_commas,
)
from restrain_openrlhf.answers.value import real_number, value_key, values_of, variables

MAX_LENGTH = 4000
MAX_NESTING = 12

_CASES = re.compile(r"\\begin\{cases\}(?P<rows>.*?)\\end\{cases\}", re.S)
_LETTER = re.compile(r"\(?\s*([A-Z])\s*\)?")
_BASE = re.compile(r"(\d+)\s*_\s*\{?(\d+)\}?")
# Stems of names that only number the solutions: the x_ of x_1 and x_2.
_NUMBERED = re.compile(r"\\?(?:x|y|z|lambda)_|\(.*_.*\)")
_SINGLE = re.compile(rf"(?:\\(?:{'|'.join(DECORATIONS)})\s*\{{?\s*)?(?:\\[a-zA-Z]+|[a-zA-Z])'*\s*\}}?")
MAX_BRACKETS = 3

_ENVIRONMENT = re.compile(
    r"\\begin\{(?P<name>[pbB]?matrix|smallmatrix|array)\}(?:\{[clr|\s]*\})?(?P<rows>.*?)\\end\{(?P=name)\}", re.S
)
# A row break may have a length: \\[4pt].
_ROW_BREAK = re.compile(r"\\\\(?:\s*\[\s*-?[\d.]+\s*[a-z]{2}\s*\])?|\\cr(?![a-zA-Z])")
_LINE = re.compile(r"\\hline(?![a-zA-Z])")


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
    # latex2sympy2 is asked only for a whole answer or one side of an equation: deeper parts would take too long.
    return (residual_key(text) if depth <= 1 else None) or _text_key(text)


def _letter_or_based_number(text: str, _key_of: KeyOf) -> str | None:
    if letter := _LETTER.fullmatch(text):
        return f"letter {letter[1]}"
    found = _BASE.fullmatch(text)
    return f"base {int(found[2])} {int(found[1])}" if found else None


def _cases(text: str, key_of: KeyOf) -> str | None:
    """Equations one below the other are a list. The branches of a function are compared as text."""
    found = _CASES.fullmatch(text)
    rows = [row for row in found["rows"].split(r"\\") if row.strip()] if found else []
    are_equations = all("=" in row and len(split_top_level(row.strip(" ,;"), (",", ";", "&"))) == 1 for row in rows)
    return key_of(", ".join(row.strip(" ,;") for row in rows)) if rows and are_equations else None


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
        return list_key(found.inside, key_of)
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


def _plain_or_number(text: str, _key_of: KeyOf) -> str | None:
    return _text_key(text) if is_plain(text) else _number_key(text)


def _number_key(text: str, plus_minus: int = 1) -> str | None:
    found = values_of(text, plus_minus)
    return value_key(found) if found else None


def _text_key(text: str) -> str:
    """The key as text. Words are compared without case, wrappers and repeated spaces; other text without spaces."""
    bare = text.strip(" $().,`'\"")
    if re.fullmatch(r"[A-Za-z][A-Za-z\s,.'-]*[!?]*", bare):
        return "words " + " ".join(bare.rstrip("!?").casefold().split())
    return "text " + "".join(bare.split())


def union_key(text: str, key_of: KeyOf) -> str | None:
    """The key of sets joined by ∪, or of inequalities joined by "or"."""
    parts = alternatives(text)
    if len(parts) == 1:
        parts = split_top_level(text, (r"\cup",))
        # In `A ∪ B = {1,2}` the union is only a label, but `x ∈ A ∪ B` is the union.
        if len(parts) > 1 and top_level_signs(text) in (["="], [r"\in"]):
            return None
    return union(_with_names(parts, map(key_of, parts))) if len(parts) > 1 else None


def list_key(text: str, key_of: KeyOf) -> str | None:
    """The key of items between commas, semicolons or conjunctions. An item with ± has two keys."""
    separated = with_commas(text)
    parts = [part.strip() for part in split_top_level(separated, (",", ";"))]
    if len(parts) < 2 or not all(parts):  # noqa: PLR2004 - a list has two items
        return None
    named = [found for part in parts if (found := assignment(part))]
    key = _named_key(named, key_of) if len(named) == len(parts) else None
    if key:
        return key
    keys = [key for part in parts for key in _plus_minus_keys(part) or [key_of(part)]]
    if len(named) < len(parts) == len(keys):
        keys = _with_names(parts, keys)
    # `x < 1, x > 2` can only mean "or", but with "and" it is a list.
    return union(keys) if separated == text and are_disjoint_rays(keys) else unordered(keys)


def _with_names(parts: Sequence[str], keys: Iterable[str]) -> list[str]:
    """Each part's key, with the name that it is about if the parts are about several: x > 1, y > 2."""
    about = [_name(part) for part in parts]
    if len(set(about) - {None}) < 2:  # noqa: PLR2004 - several names
        return list(keys)
    return [key if name is None else f"{name}: {key}" for name, key in zip(about, keys, strict=True)]


def _name(part: str) -> str | None:
    """The only variable of an inequality, or the label of an equation or a membership; None for another text."""
    if found := assignment(part):
        return _bare(found.label)
    signs = top_level_signs(part)
    if not signs:
        return None
    sides = sides_of(part, signs)
    names = _variables(sides[0]) if signs == [MEMBERSHIP] else set().union(*map(_variables, sides))
    return names.pop() if len(names) == 1 else None


def unordered(keys: Iterable[str]) -> str:
    """The key of a set or a bare list."""
    return "list " + ", ".join(sorted(keys))


def union(keys: Iterable[str]) -> str:
    return "union " + " u ".join(sorted(keys))


def _named_key(named: list[Assignment], key_of: KeyOf) -> str | None:
    """The key of items with different names, or of a list of such: `p=5, q=2; p=7, q=2`; None for other names."""
    width = len({_bare(item.label) for item in named})
    if width == 1:
        return None
    rows = [named[start : start + width] for start in range(0, len(named), width)]
    if any(len({_bare(item.label) for item in row}) != width for row in rows):
        return None
    keys = [_record_key(row, key_of) for row in rows]
    return keys[0] if len(rows) == 1 and keys[0] else unordered(key for key in keys if key) if all(keys) else None


def _record_key(row: Sequence[Assignment], key_of: KeyOf) -> str | None:
    """The key of one value per name: a tuple if the names are letters, a list if values ascend, else a record."""
    # Latin letters before Greek ones, as in (r, θ).
    row = sorted(row, key=lambda item: (_bare(item.label).startswith("\\"), _bare(item.label)))
    labels = [_bare(item.label) for item in row]
    # Some labels only number the solutions: x_1, x_2, or (x_1, y_1), (x_2, y_2).
    stems = {re.sub(r"_\d+", "_", label) for label in labels}
    if len(stems) == 1 and _NUMBERED.fullmatch(stems.pop()):
        return None
    keys = [key_of(item.value) for item in row]
    if all(_SINGLE.fullmatch(item.label) for item in row) and not _refers(row):
        return "tuple " + ", ".join(keys)
    numbers = [real_number(item.value) for item in row]
    if all(one is not None and other is not None and one <= other for one, other in pairwise(numbers)):
        return unordered(keys)
    return "record " + ", ".join(f"{label}={key}" for label, key in zip(labels, keys, strict=True))


def _bare(label: str) -> str:
    return re.sub(r"[\s{}]", "", label)


def _refers(row: Sequence[Assignment]) -> bool:
    """Whether a value refers to another of the names, as in x = y, y = 2."""
    labels = {item.label.removeprefix("\\") for item in row}
    return any(labels & _variables(item.value) for item in row)


def _variables(text: str) -> set[str]:
    try:
        return variables(parse(text))
    except NotAnExpression:
        return set()


def matrix_key(text: str, key_of: KeyOf) -> str | None:
    """The key of a matrix, with or without brackets around it; None for any other text."""
    rows = _rows_in_environment(text) if "\\begin" in text else _rows_in_brackets(text)
    return "matrix " + ";".join("&".join(key_of(cell) for cell in row) for row in rows) if rows else None


def _rows_in_environment(text: str) -> list[list[str]]:
    found = _ENVIRONMENT.fullmatch(_without_brackets(text))
    lines = _ROW_BREAK.split(_LINE.sub("", found["rows"])) if found else []
    return [line.split("&") for line in lines if line.strip()]


def _without_brackets(text: str) -> str:
    """The text without brackets around it, of which at most MAX_BRACKETS are removed."""
    for _ in range(MAX_BRACKETS):
        around = bracketed(text)
        if not around or around.opening + around.closing not in ("()", "[]"):
            break
        text = unwrap_braces(around.inside.strip())
    return text


def _rows_in_brackets(text: str) -> list[list[str]] | None:
    """The rows of `[[1,2],[3,4]]`: two or more, all of one length."""
    rows = [_items(row) for row in _items(text) or ()]
    lengths = {len(row) for row in rows if row is not None}
    return [row for row in rows if row] if len(rows) > 1 and None not in rows and len(lengths) == 1 else None


def _items(text: str) -> list[str] | None:
    found = bracketed(text.strip())
    if not found or found.opening + found.closing != "[]":
        return None
    return [item.strip() for item in split_top_level(found.inside, (",",))]


FORMS = (
    _letter_or_based_number,
    matrix_key,
    _cases,
    _infinite,
    union_key,
    _brackets,
    list_key,
    relation_key,
    _single_set,
    _plus_minus,
    _plain_or_number,
)
