"""Makes the inputs of a group's programs: those that the prompt shows, others like them, or values by type.

They depend only on the prompt and are the same in every process: draws come from its digest, and sets are written in
order.
"""

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from restrain_openrlhf.answers.kinds.code_examples import Arguments, prose, shown_calls
from restrain_openrlhf.answers.kinds.code_mutations import (
    LARGE,
    Domain,
    Draws,
    domain_of,
    mutated,
    numbers_in,
    obeying,
    rules_of,
)
from restrain_openrlhf.answers.kinds.code_task import Parameter, Task, parse

# The most characters of an input, and the number of tries for each input that is wanted.
LONG, TRIES = 2000, 20
# In one of so many calls, two arguments are exchanged or made equal.
EXCHANGES = 5
NUMBERS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 16, 20, 25, 36, 50, 97, 100, 128, 1000, -1, -2, -5)
LETTERS = "abcde"
TEXTS = ("", "a", "ab", "hello world", "Hello, World!", "abcba", "12345", "aabbcc", "The quick brown fox", "A1 b2")
# The most items of a made text or container.
MOST_ITEMS = 6
# Usual names of parameters by their type.
BY_NAME = {
    "int": "n k m x y z i j a b c num number count size target index limit left right start end",
    "str": "s t text string str word sentence char st txt message line prefix pattern key name date phrase num_str",
    "list[int]": "lst arr nums numbers array list l values xs items data seq sequence list1 list2 nums1 nums2 integers",
    "list[str]": "words strings names texts lines tokens operators",
    "list[list[int]]": "grid matrix board lists intervals points edges",
    "dict[str, int]": "d dict dictionary counts mapping",
}
TYPES = {name: annotation for annotation, names in BY_NAME.items() for name in names.split()}
UNKNOWN = ("int", "str", "list[int]", "list[str]")


@lru_cache(maxsize=64)
def inputs_for(task: Task, count: int) -> tuple[str, ...]:
    """One to `count` inputs in the form of a job; none if the parameters are not known."""
    draws = Draws(f"{task.entry}\n{task.shown[-1]}\n{task.given}")
    calls = shown_calls(task)
    if not calls and task.parameters is None:
        return ()
    domains, rules, empty = _domains(calls, prose(task)), rules_of(calls), _only_empty(calls, task)

    def another(known: Sequence[Arguments]) -> Arguments:
        if not calls:
            return Arguments(tuple(value_for(each, draws) for each in task.parameters or ()))
        return obeying(rules, _like(_filled(draws.pick(known), empty, draws), domains, draws))

    return _grown(calls, count, another)


def _grown(
    first: Sequence[Arguments], count: int, another: Callable[[Sequence[Arguments]], Arguments]
) -> tuple[str, ...]:
    """The first inputs and then `another`, made from all known inputs that are not long; no duplicates."""
    texts = [written(each) for each in first[:count]]
    known = [each for each, text in zip(first, texts, strict=False) if len(text) <= LONG]
    for _ in range(TRIES * count):
        if len(texts) >= count or (first and not known):
            break
        value = another(known)
        text = written(value)
        if text not in texts and len(text) <= LONG:
            known.append(value)
            texts.append(text)
    return tuple(texts)


def _only_empty(calls: Sequence[Arguments], task: Task) -> dict[int, Parameter]:
    """The parameters, by place, of which the prompt shows nothing but an empty text or container."""
    columns = zip(*(call.positional for call in calls), strict=False)
    both = enumerate(zip(columns, task.parameters or (), strict=False))
    return {place: parameter for place, (column, parameter) in both if all(each in ("", [], {}) for each in column)}


def _filled(call: Arguments, empty: dict[int, Parameter], draws: Draws) -> Arguments:
    """The call with values by type where it is empty in all shown calls."""
    values = list(call.positional)
    for place, parameter in empty.items():
        made = (value_for(parameter, draws) for _ in range(TRIES))
        values[place] = next((each for each in made if type(each) is type(values[place])), values[place])
    return Arguments(tuple(values), call.named)


def _domains(calls: Sequence[Arguments], said: str) -> dict[int | str, Domain]:
    """The domain of each parameter's values, by its place or name."""
    columns: dict[int | str, list[object]] = {}
    for call in calls:
        given: dict[int | str, object] = dict(enumerate(call.positional))
        given.update(call.named)
        for place, value in given.items():
            columns.setdefault(place, []).append(value)
    return {place: domain_of(values, said) for place, values in columns.items()}


def _like(call: Arguments, domains: dict[int | str, Domain], draws: Draws) -> Arguments:
    """The call with one or two arguments changed."""
    positional, named = list(call.positional), dict(call.named)
    places: list[int | str] = [*range(len(positional)), *named]
    if len(positional) > 1 and not draws.below(EXCHANGES):
        # Nearly equal arguments test the places where programs compare them.
        one, other = draws.shuffled(range(len(positional)))[:2]
        if type(positional[one]) is type(positional[other]):
            positional[one], positional[other] = positional[other], draws.pick((positional[one], positional[other]))
    for _ in range(draws.pick((1, 1, 2)) if places else 0):
        match draws.pick(places):
            case int(place):
                others = [*positional[:place], *positional[place + 1 :]]
                positional[place] = mutated(positional[place], _beside(others, domains[place], draws), draws)
            case place:
                named[place] = mutated(named[place], domains[place], draws)
    return Arguments(tuple(positional), named)


def _beside(others: Sequence[object], domain: Domain, draws: Draws) -> Domain:
    """The domain with a number of the other arguments, a sum and a product, as far as they are in its range."""
    numbers = sorted({each for each in numbers_in(others) if abs(each) <= LARGE})
    if not numbers:
        return domain
    one, other = draws.pick(numbers), draws.pick(numbers)
    near = (each for each in (one, one + other, one * other) if domain.least <= each <= domain.greatest)
    return replace(domain, stated=(*domain.stated, *near))


def written(call: Arguments) -> str:
    """The call's arguments in the form of a job: `([positional], {named})`."""
    named = ", ".join(f"{name!r}: {literal(value)}" for name, value in call.named.items())
    return f"({literal(list(call.positional))}, {{{named}}})"


def literal(value: object) -> str:
    """The value's `repr` with sets in a fixed order, because theirs differs from process to process."""
    match value:
        case list():
            return f"[{', '.join(map(literal, value))}]"
        case tuple():
            return f"({''.join(f'{literal(each)}, ' for each in value)})"
        case set() if value:
            return f"{{{', '.join(sorted(map(literal, value)))}}}"
        case dict():
            return f"{{{', '.join(f'{literal(key)}: {literal(each)}' for key, each in value.items())}}}"
        case _:
            return repr(value)


def value_for(parameter: Parameter, draws: Draws) -> Any:
    written = parameter.annotation or _of_default(parameter.default) or TYPES.get(parameter.name.casefold())
    tree = parse((written or draws.pick(UNKNOWN)).strip("'\""))
    first = tree.body[0] if tree and tree.body else None
    return _of(first.value if isinstance(first, ast.Expr) else ast.Name("int"), draws)


def _of_default(default: str) -> str:
    """The type of a default; empty if there is none, or for None."""
    try:
        value = ast.literal_eval(default) if default else None
    except (ValueError, TypeError, SyntaxError, RecursionError):
        return ""
    return "" if value is None else type(value).__name__


def _of(annotation: ast.expr, draws: Draws) -> Any:
    """A value for an annotation such as `List[Tuple[int, str]]` or `int | None`; an integer for an unknown name."""
    match annotation:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _of(draws.pick((left, right)), draws)
        case ast.Subscript(value=outer, slice=inner):
            inside = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            return _container(_name(outer), inside, draws)
        case _:
            return _plain(_name(annotation), draws)


def _name(node: ast.expr) -> str:
    """The type's name in lower case: `list` for `List` and `typing.List`."""
    return (node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")).casefold()


def _container(name: str, inside: list[ast.expr], draws: Draws) -> Any:
    count = draws.below(MOST_ITEMS + 1)
    match name:
        case "dict" | "mapping" | "defaultdict":
            return {_key(_of(inside[0], draws)): _of(inside[-1], draws) for _ in range(count)}
        case "tuple" if not (isinstance(inside[-1], ast.Constant) and inside[-1].value is ...):
            return tuple(_of(each, draws) for each in inside)
        case "tuple":
            return tuple(_of(inside[0], draws) for _ in range(count))
        case "set" | "frozenset":
            return {_key(_of(inside[0], draws)) for _ in range(count)}
        case "optional" | "union":
            return _of(draws.pick(inside), draws)
        case _:
            return [_of(inside[0], draws) for _ in range(count)]


def _key(value: Any) -> Any:
    """The value as a key of a dictionary or an item of a set."""
    return tuple(value) if isinstance(value, list) else value


def _plain(name: str, draws: Draws) -> Any:
    """A value of a type without brackets; lists and dictionaries have numbers."""
    count = draws.below(MOST_ITEMS + 1)
    value: Any = draws.pick(NUMBERS)
    match name:
        case "float":
            value += draws.pick((0.0, 0.5, 0.25))
        case "str":
            made = "".join(draws.pick(LETTERS) for _ in range(count))
            value = draws.pick((made, made, draws.pick(TEXTS)))
        case "bool":
            value = bool(draws.below(2))
        case "bytes":
            value = bytes(draws.below(256) for _ in range(count))
        case "list" | "sequence" | "iterable" | "tuple" | "set":
            of = {"tuple": tuple, "set": set}.get(name, list)
            value = of(draws.pick(NUMBERS) for _ in range(count))
        case "dict":
            value = {draws.pick(LETTERS): draws.pick(NUMBERS) for _ in range(count)}
        case "nonetype" | "":
            value = None
    return value
