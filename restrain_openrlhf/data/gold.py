"""Gold answers, which are kept in a file apart from the prompts, and found by a problem's text, hash or id."""

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, Row
from restrain_openrlhf.answers.kind import PROBLEM, differing
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.data.jsonl import validated
from restrain_openrlhf.data.problems import AskedProblem
from restrain_openrlhf.data.prompt_reader import PROMPTS, PromptReader, is_chat, text_of, with_answer
from restrain_openrlhf.data.tables import placed_rows
from restrain_openrlhf.errors import DataError

MAX_NAMED = 5


class PromptOnly(AskedProblem):
    """A row of a training file. It has no field for an answer, so an answer cannot be written to it."""

    model_config = ConfigDict(extra="forbid")


class GoldAnswer(BaseModel):
    """A row of the sidecar, which is the file with gold beside a training file.

    `prompt_hash` is the SHA-256 of the problem without template.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt_hash: str
    answer: str


def sidecar_path(prompts: Path) -> Path:
    """The path of a training file's gold: `train.gold.jsonl` for `train.jsonl`."""
    return prompts.with_name(f"{prompts.stem}.gold{prompts.suffix}")


def finite_answer(value: object) -> object:
    """A gold answer, unchanged. Raises ValueError for NaN and infinities, which graders would call wrong."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is no answer. Leave the answer out if it is not known")
    return value


def stated_gold(kind: AnswerKind, cell: object, where: str) -> str | None:
    """The gold answer in a cell, as its kind has it (`gold_in`). A DataError begins with `where`."""
    try:
        return kind.gold_in(cell)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", coerce_numbers_to_str=True)

    prompt_hash: str | None = None
    problem: str | None = None
    id: str | None = None
    answer: Annotated[str, BeforeValidator(finite_answer)]
    inclusion: Annotated[float | None, BeforeValidator(lambda given: None if given == "" else given)] = Field(
        None, gt=0, le=1
    )


@dataclass(frozen=True)
class ProblemIdentity:
    """What identifies a problem when its gold is looked up: its id, if it has one, and the hash of its text.

    `row` has what votes read of it.
    """

    id: str | None
    problem: str
    row: Row = field(default_factory=dict)

    @classmethod
    def of(cls, name: str | int | None, text: str, row: Row = MappingProxyType({})) -> Self:
        """The identity of a problem by its id and text."""
        return cls(None if name is None else str(name), text_hash(text), row)


@dataclass(frozen=True)
class GoldFile:
    """The answers of a file: by the problem's hash, and for rows without a problem by id.

    `columns` has, by the same names, what votes read of a row, as far as the file says it. `inclusion` has, by the same
    names, the chance with which `restrain label` drew a problem, for all or for none.
    """

    path: Path
    by_problem: dict[str, str]
    by_id: dict[str, str]
    columns: dict[str, Row] = field(default_factory=dict)
    inclusion: dict[str, float] = field(default_factory=dict)

    def answers(self, where: str, asked: Iterable[ProblemIdentity]) -> Mapping[str, str]:
        """The file's answers by the problem's hash; `where` names the problems that are `asked`, in errors.

        A file may also have answers to other problems, because texts tell problems apart. Ids do not, so every id in
        the file must be that of a problem. Raises DataError if it is not, where two problems have one id, where id
        and problem have different answers, where no problem has an answer, and where the file says that a column which
        votes read has another value.
        """
        problems: dict[str, str] = {}
        matched = False
        for each in asked:
            self._refuse_another_row(each)
            matched = matched or each.problem in self.by_problem
            if each.id in self.by_id and problems.setdefault(each.id, each.problem) != each.problem:
                raise DataError(
                    f"{where}: two problems have the id {each.id!r}. Give gold with the problems' texts: rows "
                    "{problem, answer}."
                )
        if not (matched or self.by_id):
            raise DataError(
                f"{self.path}: none of its {len(self.by_problem)} problems is in {where} (texts must be equal letter "
                "by letter). Give rows {problem, answer} or {id, answer} of these problems, or their .gold.jsonl file."
            )
        return self._joined(where, problems) if self.by_id else self.by_problem

    def _refuse_another_row(self, asked: ProblemIdentity) -> None:
        for stated in (self.columns.get(name, {}) for name in (asked.problem, asked.id) if name is not None):
            if changed := differing(stated, {column: asked.row.get(column) for column in stated}):
                raise DataError(
                    f"{self.path}: has the answer to another row of the problem {str(asked.row[PROBLEM])[:60]!r}: its "
                    f"column {changed}. Correct one of the two, or leave the column out of the file with gold."
                )

    def _joined(self, where: str, problems: Mapping[str, str]) -> dict[str, str]:
        """The answers by problem, with those by id; `problems` has the problems' hashes by their ids."""
        if unknown := [name for name in self.by_id if name not in problems]:
            raise DataError(
                f"{self.path}: {len(unknown)} of its {len(self.by_id)} ids match no problem of {where}: "
                f"{_some(unknown)}. If the other rows are right, remove these; or give gold with the problems' texts: "
                "rows {problem, answer}."
            )
        found = dict(self.by_problem)
        for name, answer in self.by_id.items():
            if found.setdefault(problems[name], answer) != answer:
                raise DataError(
                    f"{self.path}: the problem with the id {name!r} has two answers, {found[problems[name]]!r} and "
                    f"{answer!r}. Keep the right one."
                )
        return found


def load_gold(path: Path, kind: AnswerKind = MATHEMATICS, skip_empty: bool = False) -> GoldFile:
    """Read the answers of a file whose rows have `answer`, and one of `problem`, `prompt_hash` and `id`.

    A row with problem and id is found by its problem. Raises DataError for a row without either or with an empty
    answer (unless `skip_empty` leaves such rows out), and for one problem or id with two different answers.
    """
    gold = GoldFile(path, {}, {})
    for where, row in _rows(path, kind, skip_empty):
        problem = row.prompt_hash or (text_hash(row.problem) if row.problem else None)
        if not (name := problem or row.id):
            raise DataError(
                f"{where}: has none of the columns `problem`, `prompt_hash` and `id`. Add one of them, so that the "
                "answer can be matched to its problem."
            )
        if own := kind.own_columns(row.model_extra or {}):
            gold.columns[name] = own
        # Many problems have the same answer, so share the strings.
        before = (gold.by_problem if problem else gold.by_id).setdefault(name, sys.intern(row.answer))
        if before != row.answer:
            named = "the same problem" if problem else f"the id {name!r}"
            raise DataError(f"{where}: {named} has two answers, {before!r} and {row.answer!r}. Keep the right one.")
        if row.inclusion is not None:
            gold.inclusion[name] = row.inclusion
    if gold.inclusion and len(gold.inclusion) < (count := len(gold.by_problem) + len(gold.by_id)):
        raise DataError(
            f"{path}: the column `inclusion`, the chance with which `restrain label` drew a problem, is filled for "
            f"{len(gold.inclusion)} of {count} answers, so they cannot be weighted. Leave the other rows out; or the "
            "column, and all count once."
        )
    if not gold.by_problem and not gold.by_id:
        raise DataError(f"{path}: has no rows. Give a file with at least one answer.")
    return gold


def _rows(path: Path, kind: AnswerKind, skip_empty: bool) -> Iterator[tuple[str, _Row]]:
    """Every row with its place. As in verl's files, a prompt can identify it, and the answer can be in an object."""
    reader = PromptReader("a column `problem`", "problem", is_default=True)
    for place, row in placed_rows(path):
        known = {name: row[name] for name in ("problem", "prompt_hash", "id") if row.get(name) not in (None, "")}
        if is_chat(known.get("problem")) or (not known and any(name.lower() in PROMPTS for name in row)):
            known["problem"] = text_of(reader.read(f"{path}, {place}", row))
        found = validated(path, place, {**with_answer(row), **known}, _Row)
        where = f"{path}, {place}"
        if stated_gold(kind, found.answer, where) is not None:
            yield where, found
        elif not skip_empty:
            raise DataError(f"{where}: answer is empty. Fill it in, or remove the row.")


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:MAX_NAMED])) + (
        f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    )
