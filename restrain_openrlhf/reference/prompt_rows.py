"""Finds the row of a prompt for processes that only see the prompt's text, by the problem that the text contains."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Self

from restrain_openrlhf.answers import AnswerKind, Row
from restrain_openrlhf.data.prompt_reader import PromptReader
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.reference.prompts import PromptSource, all_rows

# The length of the beginning of a problem by which it is looked up, in characters.
BEGINNING = 24


@dataclass(frozen=True)
class PromptRows:
    """Rows by the text of their problem; `file` is the file that they come from, None if there are no rows."""

    file: Path | None = None
    rows: Mapping[str, Row] = field(default_factory=dict)

    @classmethod
    def of(cls, file: Path | None, kind: AnswerKind, graded: bool = False) -> Self:
        """The rows of a file, with the columns that the kind of answer reads, and those of gold if `graded`.

        Without a file there are no rows. A chat is found by its last message. Raises DataError for a file that cannot
        be read, a row without a problem, and two different rows of one problem.
        """
        rows: dict[str, Row] = {}
        own = kind.graded_row if graded else kind.row
        reader = PromptReader("`restrain data prepare own --prompt-column`")
        for where, columns in all_rows(PromptSource(str(file))) if file is not None else ():
            asked = reader.read(f"{file}, {where}", columns)
            problem = asked if isinstance(asked, str) else str(asked[-1]["content"])
            if rows.setdefault(problem.strip(), row := own(problem, columns)) != row:
                raise DataError(
                    f"{file}, {where}: the problem {problem[:60]!r} appears twice. Remove one of the two rows."
                )
        return cls(file, rows)

    def find(self, prompt: str) -> Row | None:
        """The row of the longest problem that the prompt contains; None if there are no rows at all.

        This works for every template, because the prompt contains the problem's text. Raises DataError if the prompt
        contains no problem of the file.
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
        """Problems by the length of their lookup text (at most BEGINNING), and then by that text."""
        found: dict[int, dict[str, list[str]]] = {}
        for problem in self.rows:
            beginning = problem[:BEGINNING]
            found.setdefault(len(beginning), {}).setdefault(beginning, []).append(problem)
        return found
