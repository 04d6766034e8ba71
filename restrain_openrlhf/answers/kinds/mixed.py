"""A file whose prompts have different kinds of answers: each row's column `answers` names its own."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from restrain_openrlhf.answers.kind import KINDS, AnswerKind, Row, parse_kind, register
from restrain_openrlhf.errors import ConfigError, DataError

COLUMN = "answers"


@register
class Mixed(AnswerKind):
    """Each row's column `answers` names its kind, such as choice. A row without the column has the kind `default`."""

    version: ClassVar[str] = "1"
    reads: ClassVar[str] = "What counts as an answer is said by the kind that each row names."

    name: Literal["mixed"] = "mixed"
    default: str = Field("math", description="The kind of a row that names none.")
    kinds: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Settings of kinds that rows name, such as {text: {read: tag}}."
    )

    def check(self) -> None:
        """Of the default and of the kinds that have settings; which others the rows name is not known."""
        for name in {self.default, *self.kinds}:
            parse_kind({"name": name, **self.kinds.get(name, {})}).check()

    def row_columns(self) -> frozenset[str]:
        shipped = (kind.columns for kind in KINDS.values())
        return frozenset({COLUMN}).union(*shipped)

    def extract(self, response: str, row: Row) -> str | None:
        return self._of(row).extract(response, row)

    def key(self, answer: str, row: Row) -> str:
        kind = self._of(row)
        return f"{kind.name} {kind.key(answer, row)}"

    def classes(self, answers: Sequence[str | None], row: Row) -> list[int | None]:
        return self._of(row).classes(answers, row)

    def is_right(self, answer: str | None, gold: str, row: Row) -> bool:
        return self._of(row).is_right(answer, gold, row)

    def _of(self, row: Row) -> AnswerKind:
        name = str(row.get(COLUMN) or self.default)
        try:
            return parse_kind({"name": name, **self.kinds.get(name, {})})
        except ConfigError as error:
            raise DataError(
                f"The prompt {str(row.get('problem'))[:60]!r} has {name!r} in its column {COLUMN!r}: {error}"
            ) from None
