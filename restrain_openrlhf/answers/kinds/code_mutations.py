"""Makes values that are a little different from the shown ones, but keep what those have in common.

For example, a negative number or an empty list is made only if one is shown or the prompt speaks of it, sorted lists
stay sorted, and lists of equal length stay equally long. On values that a prompt does not allow, right programs may
differ. Numbers that the prompt states or other arguments have are tried too, because programs branch on them.
Draws are the same for the same text, in every process and version of Python.
"""

import hashlib
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, TypeVar

from restrain_openrlhf.answers.kinds.code_examples import Arguments

Item = TypeVar("Item")
# A rule needs so many calls, or one with a longer list, because one call may obey it by chance.
ENOUGH = 2
# In one of so many changes, a number becomes one that is stated.
STATED = 3
# Larger numbers are not computed with, because they may have no float.
LARGE = 10**9
_WORDS = re.compile(r"(\s+)")
# Digits around a mark, as in 03-11-2000 or 1/5: a text with a form, of which only numbers are changed.
_FORM = re.compile(r"\d[^\w\s]\d")
_STATED = re.compile(r"(?<![\w.])-?\d{1,9}(?:\.\d{1,9})?(?!\w)")
_LETTER = re.compile(r"""(?<!\w)['"`](\S)['"`](?!\w)""")
_NEGATIVE = re.compile(r"(?<!non)(?<!non[- ])negative", re.IGNORECASE)


class Draws:
    """Random draws that depend only on a text: Python promises never to change the numbers of `random()`."""

    def __init__(self, text: str) -> None:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        self._source = random.Random(int.from_bytes(digest))

    def below(self, end: int) -> int:
        """A whole number from 0 to `end` - 1."""
        return int(self._source.random() * end)

    def pick(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in items]


@dataclass(frozen=True)
class Domain:
    """What the shown values of a parameter have in common, at any depth, and what the prompt's sentences say.

    `least` is the smallest number and `greatest` twice the largest and a little more, so that a slow but right program
    does not run out of time. Then come the letters, the shortest text and list, whether all lists are sorted, whether
    whole numbers stand beside others, and the numbers that are stated, which may be out of that range.
    """

    least: float = 0
    greatest: float = 10
    letters: str = "ab"
    shortest_text: int = 0
    shortest_list: int = 0
    is_sorted: bool = False
    is_mixed: bool = False
    stated: tuple[float, ...] = ()


def domain_of(values: Iterable[object], prose: str) -> Domain:
    parts = [part for value in values for part in _parts(value)]
    numbers = list(numbers_in(parts))
    greatest, may_be_empty = 2 * max([*numbers, 0]) + 5, "empty" in prose.casefold()
    texts = [part for part in parts if isinstance(part, str)]
    rows = [part for part in parts if isinstance(part, list | tuple)]
    return Domain(
        -greatest if _NEGATIVE.search(prose) else min([1, *numbers]) if numbers else 0,
        greatest,
        "".join(sorted({*"".join(texts), *_LETTER.findall(prose)})) or "ab",
        0 if may_be_empty else min(map(len, texts), default=0),
        0 if may_be_empty else min(map(len, rows), default=0),
        sum(len(row) > 1 for row in rows) > 1 and all(_is_sorted(row) for row in rows),
        len({isinstance(each, int) for each in numbers}) > 1,
        tuple(dict.fromkeys(float(each) if "." in each else int(each) for each in _STATED.findall(prose))),
    )


def numbers_in(value: object) -> Iterator[float]:
    """The numbers in a value, at any depth, without True and False."""
    return (part for part in _parts(value) if isinstance(part, int | float) and not isinstance(part, bool))


def _parts(value: object) -> Iterator[object]:
    yield value
    if isinstance(value, list | tuple | set):
        yield from (part for item in value for part in _parts(item))
    elif isinstance(value, dict):
        yield from (part for item in value.items() for each in item for part in _parts(each))


def _is_sorted(row: Sequence[Any]) -> bool:
    try:
        return list(row) == sorted(row)
    except TypeError:
        return False


def mutated(value: Any, domain: Domain, draws: Draws) -> Any:
    """A value of the same type that is changed in one place, or the value itself if nothing can be changed."""
    new = value
    match value:
        case bool():
            new = not value
        case int() | float():
            new = _number(value, domain, draws)
        case str():
            new = _text(value, domain, draws)
        case list():
            new = _row(value, domain, draws)
        case tuple():
            new = tuple(_row(list(value), domain, draws))
        case set():
            new = set(_row(sorted(value, key=repr), domain, draws))
        case dict() if value:
            key = draws.pick(list(value))
            new = {**value, key: mutated(value[key], domain, draws)}
    return new


def _number(value: float, domain: Domain, draws: Draws) -> float:
    stated = [each for each in domain.stated if isinstance(each, int) or isinstance(value, float)]
    if stated and not draws.below(STATED):
        return type(value)(draws.pick(stated))
    if domain.is_mixed and abs(value) <= LARGE and not draws.below(STATED):
        return float(int(value))
    if isinstance(value, int):
        near = (value + 1, value - 1, value * 2, value + 2 + draws.below(8), value // 2, value + 3, 0, -value)
        return draws.pick([int(each) for each in near if domain.least <= each <= domain.greatest] or [value])
    steps = (value + 1, value * 2, value - 0.5, value / 2, value + 0.25)
    return float(round(min(max(draws.pick(steps), domain.least), domain.greatest), 3))


def _text(text: str, domain: Domain, draws: Draws) -> str:
    letter = draws.pick(domain.letters)
    if not text:
        return letter
    if _FORM.search(text):
        run = draws.pick(list(re.finditer(r"\d{1,18}", text)))
        whole = replace(domain, least=0, greatest=10 ** len(run[0]) - 1, is_mixed=False)
        number = abs(int(_number(int(run[0]), whole, draws)))
        return f"{text[: run.start()]}{str(number).zfill(len(run[0]))}{text[run.end() :]}"
    at = draws.below(len(text))
    changed = (
        text[:at],
        text[:at] + text[at + 1 :],
        text[:at] + text[at] + text[at:],
        text[::-1],
        text + text[:at],
        text[:at] + letter + text[at + 1 :],
        text[:at] + letter + text[at:],
        text[:at] + " " * (1 + draws.below(3)) + text[at:],
        text[:at] + text[at:].swapcase(),
        text.swapcase(),
        "".join(draws.shuffled(_WORDS.split(text))),
    )
    new = draws.pick(changed)
    return new if len(new) >= domain.shortest_text else text


def _row(items: list[Any], domain: Domain, draws: Draws) -> list[Any]:
    if not items:
        return items
    at = draws.below(len(items))
    other = mutated(items[at], domain, draws)
    changed = (
        [*items[:at], other, *items[at + 1 :]],
        [*items[:at], *items[at + 1 :]],
        [*items[:at], items[at], *items[at:]],
        draws.shuffled(items),
        [*items, other],
        items[:at],
        items[: at + 1],
    )
    new = draws.pick(changed)
    if domain.is_sorted and _is_sorted(items):
        new = sorted(new)
    return new if len(new) >= domain.shortest_list else items


@dataclass(frozen=True)
class Rules:
    """Rules that all shown calls obey, by the places of arguments.

    `equally_long` are lists of equal length. `at_most_the_length` pairs a number with a list or text that is at least
    as long.
    """

    equally_long: tuple[int, ...]
    at_most_the_length: tuple[tuple[int, int], ...]


def rules_of(calls: Sequence[Arguments]) -> Rules:
    rows = [call.positional for call in calls]
    width = min(map(len, rows), default=0)
    longest = max((len(each) for row in rows for each in row if isinstance(each, list)), default=0)
    pairs = list(permutations(range(width), 2)) if max(len(rows), longest - 1) >= ENOUGH else []
    lists = [pair for pair in pairs if all(_are_equally_long(row[pair[0]], row[pair[1]]) for row in rows)]
    numbers = [pair for pair in pairs if all(_is_at_most_the_length(row[pair[0]], row[pair[1]]) for row in rows)]
    return Rules(tuple(sorted({place for pair in lists for place in pair})), tuple(numbers))


def _are_equally_long(one: object, other: object) -> bool:
    return isinstance(one, list) and isinstance(other, list) and len(one) == len(other)


def _is_at_most_the_length(number: object, row: object) -> bool:
    return type(number) is int and isinstance(row, list | str) and number <= len(row)


def obeying(rules: Rules, call: Arguments) -> Arguments:
    """The call with its lists cut and its numbers lowered to obey the rules."""
    values = list(call.positional)
    shortest = min((len(values[place]) for place in rules.equally_long), default=0)
    for place in rules.equally_long:
        values[place] = values[place][:shortest]
    for number, row in rules.at_most_the_length:
        values[number] = min(values[number], len(values[row]))
    return Arguments(tuple(values), call.named)
