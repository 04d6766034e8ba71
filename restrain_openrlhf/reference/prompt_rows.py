"""The prompts' own data for processes that see nothing of a prompt but its text: found by the problem that it holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Self

from restrain_openrlhf.answers import AnswerKind, Row
from restrain_openrlhf.data.problems import PROBLEM_COLUMNS
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.reference.prompts import PromptSource, all_rows

# Characters of a problem's beginning by which it is looked for.
BEGINNING = 24


@dataclass(frozen=True)
class PromptRows:
    """Rows by the text of their problem; `file` is where they are from, None where there are none."""

    file: Path | None = None
    rows: Mapping[str, Row] = field(default_factory=dict)

    @classmethod
    def of(cls, file: Path | None, kind: AnswerKind, graded: bool = False) -> Self:
        """The file's rows, with the columns that the kind of answer reads (gold's if `graded`); none without a file.

        Raises DataError for a file that cannot be read, a row without a problem, and two rows of one problem.
        """
        rows: dict[str, Row] = {}
        own = kind.graded_row if graded else kind.row
        for where, columns in all_rows(PromptSource(str(file))) if file is not None else ():
            problem = next((columns[name] for name in PROBLEM_COLUMNS if columns.get(name)), None)
            if not isinstance(problem, str) or not problem.strip():
                raise DataError(f"{file}, {where}: has no text in any of {', '.join(PROBLEM_COLUMNS)}. Remove the row.")
            if rows.setdefault(problem.strip(), row := own(problem, columns)) != row:
                raise DataError(
                    f"{file}, {where}: the problem {problem[:60]!r} appears twice. Remove one of the two rows."
                )
        return cls(file, rows)

    def find(self, prompt: str) -> Row | None:
        """The row of the longest problem that the prompt holds; None where there are no rows at all.

        Whatever template is around the problem, its text is in the prompt. Raises DataError where none of them is.
        """
        if not self.rows:
            return None
        found = max(self._problems_in(prompt), key=len, default=None)
        if found is None:
            raise DataError(
                f"{self.file}: the prompt {prompt[:80]!r} contains none of its {len(self.rows)} problems. Name the "
                "file of these prompts under answer_rows."
            )
        return self.rows[found]

    def _problems_in(self, prompt: str) -> list[str]:
        return [
            problem
            for length, beginnings in self._by_beginning.items()
            for start in range(len(prompt) - length + 1)
            for problem in beginnings.get(prompt[start : start + length], ())
            if prompt.startswith(problem, start)
        ]

    @cached_property
    def _by_beginning(self) -> dict[int, dict[str, list[str]]]:
        """Problems by the length of what they are looked for by, and by that."""
        found: dict[int, dict[str, list[str]]] = {}
        for problem in self.rows:
            beginning = problem[:BEGINNING]
            found.setdefault(len(beginning), {}).setdefault(beginning, []).append(problem)
        return found
