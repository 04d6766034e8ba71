"""Reads Python in text: parses it, lists functions and open ones, and finds fenced blocks in prose."""

import ast
import builtins
import warnings
from collections.abc import Iterator

# Longer texts are no answer. Parsing takes about a second for a million characters.
LONGEST = 100_000
PYTHON = frozenset({"", "python", "python3", "py", "py3", "python2"})
Function = ast.FunctionDef | ast.AsyncFunctionDef


def parse(text: str) -> ast.Module | None:
    """The syntax tree; None if the text is not Python. Accepts any text."""
    if len(text) > LONGEST:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """The module's functions as `name` and those of its classes as `Class.name`, in order."""
    for node in tree.body:
        if isinstance(node, Function):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{item.name}", item) for item in node.body if isinstance(item, Function))


def is_open(function: Function) -> bool:
    """Whether a function is still to be written: its body has only strings, `pass`, `...` or `raise`."""
    return all(
        isinstance(each, ast.Pass | ast.Raise) or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
        for each in function.body
    )


def defines(tree: ast.Module, entry: str) -> bool:
    """Whether the module defines the function's name, or for `Class.method` the class's name."""
    wanted = entry.partition(".")[0]
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names = {name}
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.Import() | ast.ImportFrom():
                names = {alias.asname or alias.name for alias in node.names}
            case _:
                names = set()
        if wanted in names:
            return True
    return False


def called_names(text: str) -> list[str]:
    """Names of functions that a text calls after `assert` or `>>>`, once per call, without Python's built-in ones."""
    lines = [line.strip() for line in text[:LONGEST].splitlines()]
    shown = [line.removeprefix(">>>").strip() for line in lines if line.startswith((">>>", "assert "))]
    trees = [tree for line in shown[:100] if (tree := parse(line))]
    calls = [node.func for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [name.id for name in calls if isinstance(name, ast.Name) and not hasattr(builtins, name.id)]


def fenced(text: str) -> list[str]:
    """Blocks fenced by ``` whose language is Python or not given. A block that never ends counts too."""
    blocks: list[str] = []
    lines: list[str] = []
    language: str | None = None
    for line in text.splitlines():
        mark = line.strip()
        if not mark.startswith("```"):
            lines.append(line)
        elif language is None:
            language, lines = mark.strip("`").strip().casefold(), []
        else:
            blocks += ["\n".join(lines)] * (language in PYTHON)
            language = None
    if language is not None and language in PYTHON:
        blocks.append("\n".join(lines))
    return blocks
