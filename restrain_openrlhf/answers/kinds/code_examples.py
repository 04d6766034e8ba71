"""Finds the inputs that a prompt shows: calls in examples, values of parameters, and arguments after `Input`."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from restrain_openrlhf.answers.kinds.code_task import Task, parse

# The most places that are searched, and the most characters of one value.
MOST, LONG = 50, 2000
OPENING, CLOSING = "([{", ")]}"
_PLAIN = re.compile(r"-?\d{1,30}(?:\.\d{1,30})?|True|False|None")
_ARROW = re.compile(r"\s{0,5}(?:=+>|-+>|➞|→|returns|should|==)")
_EXAMPLE = re.compile(r"=+>|-+>|➞|→|==|>>>")


@dataclass(frozen=True)
class Arguments:
    """The arguments of one call."""

    positional: tuple[Any, ...]
    named: dict[str, Any] = field(default_factory=dict)


def shown_calls(task: Task) -> list[Arguments]:
    """The row's own examples, or else those that the first successful finder reads from the prompt; no duplicates."""
    given = [call for each in task.given if (call := _given(each))]
    if given:
        return _distinct(given)
    finders = (_calls, _loose_calls, _named_values, _input_lines, _before_arrows)
    found = (list(finder(text, task)) for finder in finders for text in task.shown if text)
    return _distinct(next((calls for calls in found if calls), []))


def prose(task: Task) -> str:
    """The sentences of the docstring or the whole prompt, without lines that look like examples or their outputs."""
    call = f"{task.entry.rpartition('.')[2]}("
    lines = (task.shown[0] or task.shown[-1]).splitlines()
    kept = (line for line in lines if call not in line and not _EXAMPLE.search(line))
    return "\n".join(line for line in kept if not _arguments(f"_({line.strip()})"))


def unread_examples(task: Task) -> bool:
    """Whether the row gives examples of calls, but none with literal arguments."""
    return bool(task.given) and not any(map(_given, task.given))


def shows_call(task: Task) -> bool:
    """Whether the prompt calls the function somewhere, even with values that cannot be read."""
    return f"{task.entry.rpartition('.')[2]}(" in task.shown[-1]


def _given(example: str) -> Arguments | None:
    """The call of an example, which is a call, arguments with commas, or one argument per line."""
    lines = ", ".join(line for line in example.splitlines() if line.strip())
    return next((call for text in (example, f"_({example})", f"_({lines})") if (call := _arguments(text))), None)


def _distinct(calls: Sequence[Arguments]) -> list[Arguments]:
    return list({repr(call): call for call in calls}.values())[:MOST]


def _arguments(text: str, names_are_texts: bool = False) -> Arguments | None:
    """The arguments of one call, if all are literals."""
    tree = parse(text.strip())
    if not tree or len(tree.body) != 1 or not isinstance(tree.body[0], ast.Expr):
        return None
    call = tree.body[0].value
    if not isinstance(call, ast.Call):
        return None
    try:
        positional = [_literal(each, names_are_texts) for each in call.args]
        named = {each.arg or "": _literal(each.value, names_are_texts) for each in call.keywords}
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return Arguments(tuple(positional), named) if "" not in named else None


class _NamesAreTexts(ast.NodeTransformer):
    """Turns names into strings: `is_happy(abcd)` means the text `abcd`."""

    def visit_Name(self, node: ast.Name) -> ast.Constant:
        return ast.Constant(node.id)


def _literal(node: ast.expr, names_are_texts: bool) -> Any:
    """The node's value. Raises ValueError if it is no literal, or contains `...`."""
    node = _NamesAreTexts().visit(node) if names_are_texts else node
    if any(isinstance(each, ast.Constant) and each.value is ... for each in ast.walk(node)):
        raise ValueError("an ellipsis stands for values that are not shown")
    return ast.literal_eval(node)


def _calls(text: str, task: Task, names_are_texts: bool = False) -> Iterator[Arguments]:
    """Calls such as `f(1, 2)`, wherever they are, except after `def`."""
    name = task.entry.rpartition(".")[2]
    for match in list(re.finditer(rf"(?<![\w.])(?:\w{{1,40}}\.)?{re.escape(name)}\(", text))[:MOST]:
        end = _closing(text, match.end() - 1)
        if end and not text[: match.start()].endswith("def "):
            call = _arguments(f"_{text[match.end() - 1 : end]}", names_are_texts)
            if call and (call.positional or call.named or not task.parameters):
                yield call


def _loose_calls(text: str, task: Task) -> Iterator[Arguments]:
    """Calls such as `f(abc)` with strings that lack quotes, but not `f(s)` if s is a parameter's name."""
    own = {each.name for each in task.parameters or ()}
    return (call for call in _calls(text, task, True) if not own & {x for x in call.positional if isinstance(x, str)})


def _named_values(text: str, task: Task) -> Iterator[Arguments]:
    """Named values such as `s = "abc", c = "b"`, for as many examples as every parameter has values."""
    text, columns = _without_head(text, task), []
    for parameter in task.parameters or ():
        places = re.finditer(rf"(?<!\w){re.escape(parameter.name)}\s?(?:=|:|(?=\[))\s?", text)
        values = (_value_at(text, match.end()) for match in list(places)[:MOST])
        columns.append([value[0] for value in values if value])
    return (Arguments(values) for values in zip(*columns, strict=False))


def _without_head(text: str, task: Task) -> str:
    """The text without the parameters after the function's first `def`, whose defaults are no examples."""
    head = f"def {task.entry.rpartition('.')[2]}("
    before, found, rest = text.partition(head)
    end = _closing(f"({rest}", 0) if found else None
    return f"{before}{rest[end - 1 :]}" if end else text


def _input_lines(text: str, task: Task) -> Iterator[Arguments]:
    """Lines such as `Input: [1, 2], 3`."""
    for line in text.splitlines():
        head, colon, rest = line.partition(":")
        if colon and head.strip().casefold().endswith("input") and len(rest) < LONG:
            call = _arguments(f"_({rest.strip()})")
            if call and task.parameters is not None and len(call.positional) == len(task.parameters):
                yield call


def _before_arrows(text: str, task: Task) -> Iterator[Arguments]:
    """Lines such as `[1, 2] => 3`, for a function with one parameter."""
    if task.parameters is not None and len(task.parameters) == 1:
        for line in text.splitlines():
            start = line.strip(" *-•\t`")
            value = _value_at(start, 0)
            if value and _ARROW.match(start, value[1]):
                yield Arguments((value[0],))


def _value_at(text: str, start: int) -> tuple[Any, int] | None:
    """The literal that begins at `start`, and where it ends."""
    if text[start : start + 1] in {*OPENING, "'", '"'}:
        end = _closing(text, start)
    else:
        plain = _PLAIN.match(text, start)
        end = plain.end() if plain else None
    call = _arguments(f"_({text[start:end]})") if end else None
    return (call.positional[0], end) if call and end and len(call.positional) == 1 else None


def _closing(text: str, start: int) -> int | None:
    """The place after the bracket or quote that closes the one at `start`; None if it is too far."""
    depth, quote, place = 0, "", start
    while place < min(len(text), start + LONG):
        letter = text[place]
        if quote:
            place += letter == "\\"
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter in OPENING) - (letter in CLOSING)
        place += 1
        if not depth and not quote:
            return place
    return None
