"""From a response to a whole program: the last Python block that is one, or the prompt's code and its completion."""

import textwrap
from collections.abc import Iterator

from restrain_openrlhf.answers.kinds.code.syntax import LONGEST, defines, fenced, parse
from restrain_openrlhf.answers.kinds.code.task import Task


def program_of(response: str, task: Task) -> str | None:
    """The program; None where none parses and has the function. Linear in the response."""
    for block in reversed(fenced(response)):
        if program := _whole(block, task):
            return program
    if "```" in response or len(response) > LONGEST:
        return None
    return next(
        (program for text in _completions(response, task) if (program := _checked(text, task))), None
    ) or _whole(response, task)


def _whole(text: str, task: Task) -> str | None:
    """A block that has the function itself, under the prompt's imports and helpers; or one that goes on with it."""
    code = textwrap.dedent(text)
    if not _checked(code, task):
        return next((whole for each in _completions(text, task) if (whole := _checked(each, task))), None)
    # `from __future__` must come first, and then the imports before it are the program's own business.
    return _checked(f"{task.preamble}\n{code}", task) if task.preamble else code


def _checked(code: str, task: Task) -> str | None:
    tree = parse(code)
    if tree is None or not tree.body or (task.entry and not defines(tree, task.entry)):
        return None
    return code


def _completions(text: str, task: Task) -> Iterator[str]:
    """The prompt's code with the text as the function's body, whose first line or all may have lost its indentation."""
    lines = [line for line in text.split("\n") if line.strip()]
    if not task.code or not lines:
        return
    body, first, *rest = text.strip("\n"), *(line[0].isspace() for line in lines)
    if first:
        yield f"{task.code.rstrip()}\n{_up_to_the_end(body)}"
    elif all(rest) and (rest or lines[0].startswith("return")):
        yield f"{task.code.rstrip()}\n    {body.lstrip()}"
    elif any(line.startswith("return") for line in lines):
        yield f"{task.code.rstrip()}\n{textwrap.indent(body, '    ')}"


def _up_to_the_end(body: str) -> str:
    """A function's body ends where the indentation does, as HumanEval's own harness cuts it."""
    lines = body.split("\n")
    end = next((place for place, line in enumerate(lines) if line.strip() and line[0] not in " \t)]}"), len(lines))
    return "\n".join(lines[:end])
