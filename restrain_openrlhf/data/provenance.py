"""Provenance: what a file of sampled rows was made with, written beside it; only files made alike are joined."""

from pathlib import Path
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from restrain_openrlhf.data.outputs import whole_file
from restrain_openrlhf.errors import RestrainError


class Provenance(BaseModel):
    """What every kind of provenance can do; its fields are those of the file.

    `about` names such files in errors, and `remedy` says what to do where the provenance is damaged. Fields in
    `may_differ` do not keep two files apart. `error` is what is raised.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    about: ClassVar[str]
    remedy: ClassVar[str]
    error: ClassVar[type[RestrainError]]
    may_differ: ClassVar[frozenset[str]] = frozenset()

    def difference(self, other: Self) -> str | None:
        """The first field in which the two differ, with both values; None if there is none."""
        for name in type(self).model_fields:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs and name not in self.may_differ:
                return f"{name}: {mine!r} against {theirs!r}"
        return None

    def write(self, file: Path) -> None:
        """Write it beside `file`."""
        with whole_file(provenance_path(file)) as text:
            text.write(self.model_dump_json(indent=2) + "\n")

    @classmethod
    def of(cls, file: Path) -> Self:
        """The provenance of `file`. Raises `error` where it is missing or damaged."""
        path = provenance_path(file)
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise cls.error(
                f"{path}: no such file. {cls.about} travel with their provenance: copy both files."
            ) from None
        except ValidationError as error:
            raise cls.error(f"{path}: {error.errors()[0]['msg']}. {cls.remedy}") from None


def provenance_path(file: Path) -> Path:
    """`ref.jsonl` has its provenance in `ref.jsonl.provenance.json`."""
    return file.with_name(file.name + ".provenance.json")
