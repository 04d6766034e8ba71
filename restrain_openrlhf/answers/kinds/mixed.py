"""For files whose prompts have different kinds of answers, named by each row's column `answers`."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, ClassVar, Literal

from pydantic import Field

from restrain_openrlhf.answers.kind import KINDS, PROBLEM, AnswerKind, Row, parse_kind, register
from restrain_openrlhf.errors import ConfigError, DataError

COLUMN = "answers"


@register
class Mixed(AnswerKind):
    """Each row's column `answers` names its kind, such as choice. A row without the column has the kind `default`."""

    version: ClassVar[str] = "1"
    reads: ClassVar[str] = "The kind that each row names decides what counts as an answer."
    # The identities of these kinds are part of the version.
    without_effect: ClassVar[frozenset[str]] = frozenset({"kinds"})

    name: Literal["mixed"] = "mixed"
    default: str = "math"
    """The kind of a row that names none."""
    kinds: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Settings of the kinds that rows name, such as {text: {read: tag}}."""

    @property
    def whole_version(self) -> str:
        """The version, with those of all kinds that ship and of the kinds that the settings name."""
        shipped = {name: kind for name, kind in KINDS.items() if kind.__module__.startswith(str(__package__))}
        read = {name: f"{name} {kind.version}" for name, kind in shipped.items() if name != self.name}
        read |= {kind.name: kind.identity for kind in self._chosen()}
        return f"{self.version} ({', '.join(read[name] for name in sorted(read))})"

    def row_columns(self) -> frozenset[str]:
        """The columns of every kind that a row may name, including kinds of installed packages."""
        _load_installed_kinds()
        every = (kind.columns for kind in KINDS.values())
        return frozenset({COLUMN}).union(*every, *(kind.row_columns() for kind in self._chosen()))

    def graded_columns(self) -> frozenset[str]:
        """The gold columns of every kind that a row may name, without columns that some kind's votes read."""
        _load_installed_kinds()
        every = (kind.gold_columns for kind in KINDS.values())
        own = (kind.graded_columns() for kind in self._chosen())
        return frozenset().union(*every, *own) - self.row_columns()

    def check(self, rows: Iterable[Row] = ()) -> None:
        """Check the machine for each kind that a row or the settings name, then all rows."""
        known = list(rows)
        for name in dict.fromkeys([kind.name for kind in (*self._chosen(), *map(self._of, known))]):
            self._named(name).check_machine()
        super().check(known)

    def check_row(self, row: Row) -> None:
        self._of(row).check_row(row)

    def check_prompt(self, text: str, row: Row) -> None:
        self._of(row).check_prompt(text, row)

    def instruction_for(self, row: Row) -> str:
        return self._of(row).instruction_for(row)

    def extract(self, response: str, row: Row) -> str | None:
        return self._of(row).extract(response, row)

    def reads_together(self, row: Row) -> bool:
        return self._of(row).reads_together(row)

    def read_together(self, responses: Sequence[str], row: Row) -> list[str | None]:
        return self._of(row).read_together(responses, row)

    def key(self, answer: str, row: Row) -> str:
        kind = self._of(row)
        return f"{kind.name} {kind.key(answer, row)}"

    def classes(self, answers: Sequence[str | None], row: Row) -> list[int | None]:
        return self._of(row).classes(answers, row)

    def alike(self, keys: Sequence[str | None]) -> list[int | None]:
        """Answers of different kinds are not alike."""
        return self._alike_by_part(
            keys,
            lambda key: key.partition(" ")[0],
            lambda name, own: self._named(name).alike([key and key.partition(" ")[2] for key in own]),
        )

    def is_right(self, answer: str | None, gold: str, row: Row) -> bool:
        return self._of(row).is_right(answer, gold, row)

    def answer_of_gold(self, gold: str, row: Row) -> str | None:
        return self._of(row).answer_of_gold(gold, row)

    def _of(self, row: Row) -> AnswerKind:
        name = str(row.get(COLUMN) or self.default)
        try:
            return self._named(name)
        except ConfigError as error:
            raise DataError(
                f"The prompt {str(row.get(PROBLEM))[:60]!r} has {name!r} in its column {COLUMN!r}: {error}"
            ) from None

    def _chosen(self) -> list[AnswerKind]:
        """The default kind and those with settings. Raises ConfigError for an unknown kind or setting."""
        return [self._named(name) for name in dict.fromkeys((self.default, *self.kinds))]

    def _named(self, name: str) -> AnswerKind:
        if name == self.name:
            raise ConfigError(
                f"{name!r} cannot be the kind of a row. Name the kind of the row's answers, such as text."
            )
        return parse_kind({**self.kinds.get(name, {}), "name": name})


@cache
def _load_installed_kinds() -> None:
    """Cached, because the search takes milliseconds and every row asks for its columns."""
    KINDS.load_installed_packages()
