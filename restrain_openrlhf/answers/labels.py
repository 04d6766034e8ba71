"""Recognises labels: sides of an equation that only name the other side's value, such as names and lengths.

Whether a label may be dropped depends on what else its equation could mean. docs/concepts/answers.md has the policy.
"""

import re
from enum import Enum

from restrain_openrlhf.answers.parser import CALLED, DECORATIONS, FUNCTIONS, WORD
from restrain_openrlhf.answers.structure import bracketed, split_top_level, unwrap_braces
from restrain_openrlhf.answers.value import CONSTANTS, values_of

# Longer or deeper texts are no labels, which limits hostile texts.
MAX_LENGTH = 200
MAX_NESTING = 6
# A left side with more words is a sentence or statement that ends in an equation.
MAX_WORDS = 6


class Label(Enum):
    """The sorts of left sides, by the right sides before which they may be dropped."""

    NAME = "x, AB, f(x), (p,q): before anything"
    FIGURE = "|XY|, angle ABC, [ABC]: before what names no points itself"
    MARKED = "bar x, vec a: before constants"
    QUANTITY = "a/b, f(3), P(A|B), sin A: before constants but 0, for to set it to 0 is a condition"


_SUBSCRIPT = r"(?:_(?:\{(?:[^{}]|\{[^{}]*\})*\}|\w))?"
# x, f(x), a_{37}, \theta, y', N
_NAME = re.compile(rf"\\?[a-zA-Z]+'*{_SUBSCRIPT}(?:\s*\(\s*[a-zA-Z](?:\s*,\s*[a-zA-Z])*\s*\))?")
_ITEM = rf"(?:\\[a-zA-Z]+|[a-zA-Z])'*{_SUBSCRIPT}"
_NAME_TUPLE = re.compile(rf"\(\s*{_ITEM}(?:\s*,\s*{_ITEM})*\s*\)")
_FUNCTION = re.compile(rf"\\?(?:{'|'.join(FUNCTIONS)})(?![a-zA-Z])")
_POINTS = rf"[A-Z]'*{_SUBSCRIPT}(?:\s*[A-Z]'*{_SUBSCRIPT})*"
_MARKED = rf"\\(?:{'|'.join(DECORATIONS)})\s*(?:\{{[^{{}}]*\}}|[a-zA-Z])"
_MARKED_NAME = re.compile(_MARKED)
_FIGURE = re.compile(
    rf"\|\s*(?:{_POINTS}|{_MARKED}(?:\s*[-+]\s*{_MARKED})*)\s*\|"
    rf"|m?\s*\\angle\s*(?:\{{\s*{_POINTS}\s*\}}|{_POINTS}|\\[a-z]+)"
    rf"|\\triangle\s*{_POINTS}|\[\s*[A-Z]'*{_SUBSCRIPT}(?:\s*[A-Z]'*{_SUBSCRIPT}){{2,}}\s*\]"
)
_FIGURES = re.compile(r"[A-Z]|\\(?:angle|triangle)")
_CALL = re.compile(rf"\{{?(?P<name>\\?[a-zA-Z]+)\}}?'*{_SUBSCRIPT}(?:\^\{{?-1\}}?)?\s*(?P<arguments>[(\[].*[)\]])")
# Functions that may have any argument. Another name is a function only of a value, unlike the x of x(x+1).
_CALLED = (*CALLED, "P", "Pr", r"\Pr", "E", "Var", "Cov", "Area", "Volume")
_TRIGONOMETRIC = re.compile(r"\\?(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])\s*(?P<argument>.+)")
_OPERATOR = re.compile(
    r"(?:\\|\{)?(?:gcd|lcm|max|min|sup|inf|lim|det|dim|deg|rank|arg|sum|prod|int)\}?(?![a-zA-Z])[^<>]+"
)
_SETS = re.compile(r"[A-Z](?:\s*\\(?:cup|cap|setminus)(?![a-zA-Z])\s*[A-Z])+")
_WORDS = re.compile(r"[A-Za-z'][A-Za-z'\s]*(?:\\triangle\s+[A-Z]+)?")
_QUOTIENT = re.compile(
    r"\\frac\s*(\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})\s*(\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})"
)
_DERIVATIVE = re.compile(r"\\frac\s*\{\s*d\s*([a-zA-Z])\s*\}\s*\{\s*d\s*[a-zA-Z]\s*\}")
_MATRIX_POWER = re.compile(r"[A-Z]\s*\^\s*(?:\{[^{}]*\}|\w)")
_SUBSCRIPTS = re.compile(r"_(?:\{(?:[^{}]|\{[^{}]*\})*\}|\w)")
_INFINITE = re.compile(r"[-+]?\s*\\infty")
# A matrix, in brackets or not, which is a constant but not an expression.
_MATRIX = re.compile(r"[(\[\s]*\\begin")


def is_name(side: str) -> bool:
    """Whether a side is a plain name, or a tuple of names."""
    plain = _NAME.fullmatch(side) and not _FUNCTION.match(side)
    return bool(plain or _NAME_TUPLE.fullmatch(side))


def is_constant_name(side: str) -> bool:
    """Whether the name is that of a number, such as pi or e."""
    return side.strip().removeprefix("\\") in CONSTANTS


def names(left: str, right: str) -> bool:
    """Whether `left` only names the value `right`."""
    left = unwrap_braces(left.strip())
    label = _label(left)
    if label is Label.NAME:
        return True
    if label is Label.FIGURE:
        return not _FIGURES.search(right)
    if _MATRIX.match(right):
        return label is not None or bool(_MATRIX_POWER.fullmatch(left))
    derivative = _DERIVATIVE.fullmatch(left)
    if derivative:
        return derivative[1] not in re.sub(r"\\[a-zA-Z]+", "", right)
    return label is not None and is_constant(right, zero=label is Label.MARKED)


def is_ratio_part(part: str) -> bool:
    """Whether a part of `a : b : c` is a label."""
    return _label(part.strip()) is not None


def is_constant(text: str, zero: bool = True, depth: int = 0) -> bool:
    """Whether the text is a value without variables, or a list, tuple or set of such. `zero` says whether 0 counts."""
    text = unwrap_braces(text.strip())
    if depth > MAX_NESTING:
        return False
    found = bracketed(text)
    items = split_top_level(found.inside if found else text, (",", ";", ":"))
    if len(items) > 1 or (found and found.opening == "\\{"):
        return all(is_constant(item, depth=depth + 1) for item in items)
    if _INFINITE.fullmatch(text):
        return True
    at_points = values_of(text)
    return at_points is not None and len(at_points) == 1 and (zero or at_points[0] != 0)


def _label(side: str) -> Label | None:
    if len(side) > MAX_LENGTH:
        return None
    if is_name(side):
        return Label.NAME
    if _FIGURE.fullmatch(side):
        return Label.FIGURE if re.search(r"[A-Z]", side) else Label.QUANTITY
    if _MARKED_NAME.fullmatch(side):
        return Label.FIGURE if re.search(r"[A-Z]", side) else Label.MARKED
    is_words = _WORDS.fullmatch(side) and WORD.search(side) and len(side.split()) <= MAX_WORDS
    is_operator = _OPERATOR.fullmatch(side) and len(_terms(side)) == 1
    forms = (_SETS.fullmatch, _is_call, _is_trigonometric, _is_quotient_or_product)
    return Label.QUANTITY if is_words or is_operator or any(form(side) for form in forms) else None


def _is_call(side: str) -> bool:
    found = _CALL.fullmatch(side)
    arguments = bracketed(found["arguments"]) if found else None
    if not found or not arguments or _FUNCTION.match(side):
        return False
    return found["name"] in _CALLED or is_constant(arguments.inside)


def _is_trigonometric(side: str) -> bool:
    """Whether it is a trigonometric function of an angle without numbers: sin 2x = 1 is an equation for x."""
    found = _TRIGONOMETRIC.fullmatch(side)
    argument = _SUBSCRIPTS.sub("", found["argument"]) if found else "0"
    return not re.search(r"\d", argument) and len(_terms(argument)) == 1


def _terms(side: str) -> list[str]:
    return split_top_level(side, ("+", "-"))


def _is_quotient_or_product(side: str) -> bool:
    quotient = _QUOTIENT.fullmatch(side)
    parts = list(quotient.groups()) if quotient else split_top_level(side, ("/", "*"))
    bare = [unwrap_braces(part.strip()) for part in parts]
    return len(bare) > 1 and all(_label(part) is not None and not is_constant_name(part) for part in bare)
