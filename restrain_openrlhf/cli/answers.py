"""`restrain extract` and `restrain grade`: answer extraction and comparison on files."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.answers import canonical_key
from restrain_openrlhf.answers import extract as extract_answer
from restrain_openrlhf.cli.options import to_file
from restrain_openrlhf.data.jsonl import read_rows, write_rows


class Policy(StrEnum):
    """Which equality: that of the votes, or the more lenient one of the grader."""

    VOTE = "vote"
    EVAL = "eval"


class _Response(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    response: str


class _Answer(BaseModel):
    answer: str | None


class _Pair(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

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
        Policy,
        typer.Option(help="vote: as votes compare; eval: as the grader does, a the prediction and b the gold answer."),
    ] = Policy.VOTE,
) -> None:
    """Compare pairs of answers."""
    from restrain_openrlhf.answers.gold import is_right  # noqa: PLC0415 - not needed to vote

    equal = {Policy.VOTE: lambda a, b: canonical_key(a) == canonical_key(b), Policy.EVAL: is_right}[policy]
    rows = read_rows(pairs, _Pair)
    write_rows(out, (_Graded(a=row.a, b=row.b, equal=equal(row.a, row.b)) for row in rows))
