"""Reads the task of a prompt, a function that its code leaves open, and the program of a response.

The program is the last Python block that has the function, or the prompt's code with its completion.
"""

import ast
import builtins
import re
import textwrap
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Annotated

from pydantic import BaseModel

from restrain_openrlhf.answers.kind import ParsedCell, Row, read_columns

# Bodies to try for a prompt's last function, which may lack one; a method's body is indented further.
BODIES = ("", "\n    pass", "\n        pass")
STARTS = ("def ", "async def ", "import ", "from ", "class ", "@")
# Lines of prose may begin with "from" or "class" too.
MOST_STARTS = 20
# The marks of MBPP's few-shot prompt (Austin et al., 2021), each at the beginning of a line.
BEGIN, DONE = (re.compile(rf"^[ \t]*\[{mark}\]", re.MULTILINE) for mark in ("BEGIN", "DONE"))
# How many characters of a prompt are searched for code.
LONGEST_PROMPT = 20_000
# Longer texts are no answer. Parsing takes about a second for a million characters.
LONGEST = 100_000
PYTHON = frozenset({"", "python", "python3", "py", "py3", "python2"})
Function = ast.FunctionDef | ast.AsyncFunctionDef


class TaskColumns(BaseModel):
    """The columns of a row that are read."""

    problem: str
    entry_point: str | None = None
    examples: Annotated[tuple[str, ...] | None, ParsedCell] = None


@dataclass(frozen=True)
class Parameter:
    """One parameter of the open function: its annotation as Python writes it, and its default as a literal."""

    name: str
    annotation: str = ""
    default: str = ""


@dataclass(frozen=True)
class Task:
    """The task that programs solve.

    `entry` is the function that is called, or `Class.method`; it is empty if the prompt names none. `preamble` is the
    prompt's own code before the open function, and `code` is all of its code, which a bare completion continues.
    `parameters` is None if the prompt does not show them. `shown` are the texts that may have examples: the open
    function's docstring, and the whole prompt. `given` are the inputs of the row's own examples.
    """

    entry: str
    preamble: str
    code: str
    parameters: tuple[Parameter, ...] | None
    shown: tuple[str, ...]
    given: tuple[str, ...]


def read_task(row: Row) -> Task:
    """The row's task. Raises DataError if a column has a wrong form."""
    columns = read_columns(TaskColumns, row)
    return _task(columns.problem, columns.entry_point or "", columns.examples or ())


@lru_cache(maxsize=64)
def _task(problem: str, entry: str, given: tuple[str, ...]) -> Task:
    """The task, cached for all rollouts of a group."""
    for code, tree in _codes(problem):
        for name, function in reversed(list(functions(tree))):
            if entry in (name, name.rpartition(".")[2]) if entry else is_open(function):
                first = min([function.lineno, *(each.lineno for each in function.decorator_list)])
                preamble = "" if "." in name else "\n".join(code.split("\n")[: first - 1])
                shown = (ast.get_docstring(function) or "", problem[:LONGEST_PROMPT])
                return Task(name, preamble, code, _parameters(function, "." in name), shown, given)
    names = Counter(called_names(problem)).most_common(1)
    return Task(entry or (names[0][0] if names else ""), "", "", None, (problem[:LONGEST_PROMPT],), given)


def _codes(problem: str) -> Iterator[tuple[str, ast.Module]]:
    """Python code with a function in the prompt: fenced blocks, the last one first, then unfenced code."""
    problem = problem[:LONGEST_PROMPT]
    lines = problem.split("\n")
    starts = [place for place, line in enumerate(lines) if line.startswith(STARTS)][:MOST_STARTS]
    rest = ["\n".join(lines[start:]) for start in starts]
    blocks = ["\n".join(takewhile(_is_code, lines[start:])) for start in starts]
    for text in (*reversed(fenced(problem)), problem, *rest, *blocks):
        code = textwrap.dedent(text)
        tree = next((tree for body in BODIES if (tree := parse(code.rstrip() + body))), None)
        if tree and any(functions(tree)):
            yield code, tree


def _is_code(line: str) -> bool:
    """Whether a line is indented, empty or starts code, and so is no prose."""
    return not line.strip() or line[0].isspace() or line.startswith((*STARTS, ")", "#"))


def _text(node: ast.expr | None) -> str:
    """The node as source; empty for None, and for one that is nested too deep."""
    try:
        return ast.unparse(node) if node else ""
    except RecursionError:
        return ""


def _parameters(function: Function, is_method: bool) -> tuple[Parameter, ...]:
    """The parameters that a call gives by position, without `self`."""
    every = [*function.args.posonlyargs, *function.args.args]
    defaults = [""] * (len(every) - len(function.args.defaults)) + [_text(each) for each in function.args.defaults]
    found = [
        Parameter(each.arg, _text(each.annotation), default) for each, default in zip(every, defaults, strict=True)
    ]
    return tuple(found[1:] if is_method else found)


def program_of(response: str, task: Task) -> str | None:
    """The program of a response; None if none parses and has the function. Takes linear time.

    Text after MBPP's `[DONE]` is ignored: there the model has gone on to a next task.
    """
    response = BEGIN.split(DONE.split(response, maxsplit=1)[0])[-1]
    for block in reversed(fenced(response)):
        if program := _whole(block, task):
            return program
    if "```" in response or len(response) > LONGEST:
        return None
    return next(
        (program for text in _completions(response, task) if (program := _checked(text, task))), None
    ) or _whole(response, task)


def _whole(text: str, task: Task) -> str | None:
    """The program of a block that has the function, with the prompt's imports and helpers, or that completes it."""
    code = textwrap.dedent(text)
    if not _checked(code, task):
        return next((whole for each in _completions(text, task) if (whole := _checked(each, task))), None)
    return _checked(_behind(task.preamble, code), task) if task.preamble else code


def _behind(preamble: str, code: str) -> str:
    """The code after the preamble, and its imports from __future__ before both, as Python demands."""
    imports = [
        each for each in ast.parse(code).body if isinstance(each, ast.ImportFrom) and each.module == "__future__"
    ]
    places = {place for each in imports for place in range(each.lineno - 1, each.end_lineno or each.lineno)}
    lines = code.split("\n")
    first = [line for place, line in enumerate(lines) if place in places]
    return "\n".join([*first, preamble, *(line for place, line in enumerate(lines) if place not in places)])


def _checked(code: str, task: Task) -> str | None:
    tree = parse(code)
    return code if tree and tree.body and defines(tree, task.entry) else None


def _completions(text: str, task: Task) -> Iterator[str]:
    """The prompt's code with the text as the function's body, of which some or all lines may lack indentation."""
    lines = [line for line in text.split("\n") if line.strip()]
    if not task.code or not lines:
        return
    body, first, *rest = text.strip("\n"), *(line[0].isspace() for line in lines)
    if first:
        # HumanEval's harness cuts at the end of the indentation too.
        whole = takewhile(lambda line: not line.strip() or line[0] in " \t)]}", body.split("\n"))
        yield "\n".join([task.code.rstrip(), *whole])
    elif all(rest) and (rest or lines[0].startswith("return")):
        yield f"{task.code.rstrip()}\n    {body.lstrip()}"
    elif any(line.startswith("return") for line in lines):
        yield f"{task.code.rstrip()}\n{textwrap.indent(body, '    ')}"


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
