"""`restrain extract` and `restrain grade`: answer extraction and comparison on files."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer
from pydantic import BaseModel

from restrain_openrlhf.answers import extract as extract_answer
from restrain_openrlhf.answers.gold import is_right, same_key
from restrain_openrlhf.commands.options import to_file
from restrain_openrlhf.data.jsonl import read_rows, write_rows


class _Response(BaseModel):
    response: str


class _Answer(BaseModel):
    answer: str | None


class _Pair(BaseModel):
    a: str
    b: str


class _Graded(_Pair):
    equal: bool


def extract(
    responses: Annotated[Path, typer.Argument(metavar="RESPONSES.jsonl", help="Rows {response}.")],
    out: Annotated[Path, to_file("Output rows {answer}, in the same order; null where no answer was found.")],
) -> None:
    """Extract the final answer of each response, as in votes and evaluation."""
    rows = read_rows(responses, _Response)
    write_rows(out, (_Answer(answer=extract_answer(row.response)) for row in rows))


def grade(
    pairs: Annotated[Path, typer.Argument(metavar="PAIRS.jsonl", help="Rows {a, b}.")],
    out: Annotated[Path, to_file("Output rows {a, b, equal}, in the same order.")],
    policy: Annotated[
        Literal["vote", "eval"],
        typer.Option(help="vote: as votes compare; eval: as the grader does, a the prediction and b the gold answer."),
    ] = "vote",
) -> None:
    """Compare pairs of answers."""
    equal: Callable[[str, str], bool] = is_right if policy == "eval" else same_key
    rows = read_rows(pairs, _Pair)
    write_rows(out, (_Graded(a=row.a, b=row.b, equal=equal(row.a, row.b)) for row in rows))
