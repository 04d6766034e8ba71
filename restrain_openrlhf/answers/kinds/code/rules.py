"""What the shown calls keep between their arguments: lists of one length, and numbers no greater than a length."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from restrain_openrlhf.answers.kinds.code.examples import Arguments

# What one call keeps may be chance.
ENOUGH = 2


@dataclass(frozen=True)
class Rules:
    """Places of arguments: lists that are equally long, and pairs of a number and what is at least as long."""

    equally_long: tuple[int, ...]
    at_most_the_length: tuple[tuple[int, int], ...]


def rules_of(calls: Sequence[Arguments]) -> Rules:
    """What all calls keep."""
    rows = [call.positional for call in calls]
    width = min(map(len, rows), default=0)
    pairs = list(permutations(range(width), 2)) if len(rows) >= ENOUGH else []
    lists = [pair for pair in pairs if all(_are_equally_long(row[pair[0]], row[pair[1]]) for row in rows)]
    numbers = [pair for pair in pairs if all(_is_at_most_the_length(row[pair[0]], row[pair[1]]) for row in rows)]
    return Rules(tuple(sorted({place for pair in lists for place in pair})), tuple(numbers))


def _are_equally_long(one: object, other: object) -> bool:
    return isinstance(one, list) and isinstance(other, list) and len(one) == len(other)


def _is_at_most_the_length(number: object, row: object) -> bool:
    return type(number) is int and isinstance(row, list | str) and number <= len(row)


def obeying(rules: Rules, call: Arguments) -> Arguments:
    """The call, its lists cut and its numbers lowered so that it keeps the rules."""
    values = list(call.positional)
    shortest = min((len(values[place]) for place in rules.equally_long), default=0)
    for place in rules.equally_long:
        values[place] = values[place][:shortest]
    for number, row in rules.at_most_the_length:
        values[number] = min(values[number], len(values[row]))
    return Arguments(tuple(values), call.named)
