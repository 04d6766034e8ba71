"""Makes values for parameters that have none in the prompt, by annotation, else by default, else by name."""

import ast
from typing import Any

from restrain_openrlhf.answers.kinds.code.mutations import Draws
from restrain_openrlhf.answers.kinds.code.syntax import parse
from restrain_openrlhf.answers.kinds.code.task import Parameter

NUMBERS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 16, 20, 25, 36, 50, 97, 100, 128, 1000, -1, -2, -5)
LETTERS = "abcde"
TEXTS = ("", "a", "ab", "hello world", "Hello, World!", "abcba", "12345", "aabbcc", "The quick brown fox", "A1 b2")
LONGEST = 6
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


def value_for(parameter: Parameter, draws: Draws) -> Any:
    """A value of the parameter's type."""
    return _of(_type_of(parameter, draws), draws)


def _type_of(parameter: Parameter, draws: Draws) -> ast.expr:
    written = parameter.annotation or _of_default(parameter.default) or TYPES.get(parameter.name.casefold())
    tree = parse((written or draws.pick(UNKNOWN)).strip("'\""))
    first = tree.body[0] if tree and tree.body else None
    return first.value if isinstance(first, ast.Expr) else ast.Name("int")


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
    count = draws.below(LONGEST + 1)
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
    count = draws.below(LONGEST + 1)
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
