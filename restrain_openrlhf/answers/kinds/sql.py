"""SQL queries, which are run on the prompt's database and are equal if they return the same rows."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field, StrictStr

from restrain_openrlhf.answers.kind import PROBLEM, AnswerKind, Row, read_columns, register
from restrain_openrlhf.answers.kinds.sql_database import QUERIES, Database, Query, QueryResult
from restrain_openrlhf.answers.kinds.sql_statement import last_query, orders_rows
from restrain_openrlhf.errors import ConfigError, DataError

# The column that this kind adds to a row: a digest of the file that the row names.
DIGEST = "database_digest"
Count = Annotated[int, Field(ge=1, strict=True)]


class SqlColumns(BaseModel):
    """Exactly one of the three columns names the database."""

    database: StrictStr | None = None
    db_id: StrictStr | None = None
    script: StrictStr | None = Field(default=None, alias="schema")


@register
class Sql(AnswerKind):
    """Queries are equal if they return the same rows from the prompt's own SQLite database.

    An answer is the query of the last fenced block of SQL, or the last bare SELECT or WITH. It is run: a query that is
    wrong, writes, holds several statements or exceeds the limits is no answer. Two queries are equal if they return the
    same rows and neither has an outermost ORDER BY, or if both have one and return the same rows in the same order. (A
    result with one distinct row has no order.) A query is right if it returns the gold query's rows.
    """

    version: ClassVar[str] = "2"
    has_words: ClassVar[bool] = False
    reads: ClassVar[str] = (
        "An answer is one SELECT or WITH statement that runs on the prompt's database: the last fenced block of SQL, "
        "or the last bare statement."
    )
    instruction: ClassVar[str] = "Put the final SQLite query into one ```sql block."
    columns: ClassVar[frozenset[str]] = frozenset({"database", "db_id", "schema", DIGEST})
    without_effect: ClassVar[frozenset[str]] = frozenset({"databases"})

    name: Literal["sql"] = "sql"
    databases: str | None = None
    """The folder in which relative paths of the column `database` start, and which has a folder and file for each
    `db_id`, as Spider does: concert_singer/concert_singer.sqlite. Relative to where the run starts."""
    steps: Count = 50_000_000
    """Instructions of SQLite's virtual machine that a query may execute: about a second, but the same number on
    every computer."""
    seconds: Annotated[float, Field(gt=0)] = 5.0
    """CPU seconds that a query may take (checked to within one second), for instructions that are slow. This limit
    depends on the computer, so normally `steps` should end a query first."""
    rows: Count = 10_000
    """Most rows that a result may have."""
    empty: Annotated[bool, Field(strict=True)] = True
    """Whether a result without rows is an answer. Wrong conditions often give no rows, and would agree with each
    other."""

    def check_machine(self) -> None:
        """Find the folder of databases, if the settings name one."""
        if self.databases is not None and not Path(self.databases).is_dir():
            raise ConfigError(
                f"answers.databases: {self.databases} is not a folder (the working folder is {Path.cwd()}). Correct "
                "the path; or remove the key, if the column `database` has absolute paths."
            )

    def own_columns(self, columns: Mapping[str, Any], graded: bool = False) -> dict[str, Any]:
        """With a digest of the database's file, so that a row whose database was changed is another row."""
        found = super().own_columns(columns, graded)
        with suppress(DataError):
            return {DIGEST: digest, **found} if (digest := self._database(found).digest()) else found
        return found

    def check_row(self, row: Row) -> None:
        """Find the row's database, without opening it."""
        self._database(row)

    def extract(self, response: str, row: Row) -> str | None:
        query = last_query(response)
        if query is None:
            return None
        result = self._result(query, row)
        return query if result is not None and (self.empty or result.rows) else None

    def key(self, answer: str, row: Row) -> str:
        result = self._result(answer, row)
        if result is None:
            return f"text {answer}"
        # One distinct row has no order: a maximum can be found with or without ORDER BY.
        if orders_rows(answer) and result.different_rows > 1:
            return f"in order {result.in_order}"
        return f"rows {result.in_any_order}"

    def is_right(self, answer: str | None, gold: str, row: Row) -> bool:
        """Spider's execution accuracy, in which the gold query decides whether the order of rows counts.

        Raises DataError if the gold query does not run.
        """
        wanted = self._result(self.answer_of_gold(gold, row), row)
        if wanted is None:
            raise DataError(
                f"The gold query {gold[:200]!r} of {str(row.get(PROBLEM))[:60]!r} does not run on its database, or "
                "exceeds `steps`, `rows` or `seconds`. Correct it, leave the problem out, or raise the limits."
            )
        found = None if answer is None else self._result(answer, row)
        if found is None:
            return False
        return found.in_order == wanted.in_order if orders_rows(gold) else found.in_any_order == wanted.in_any_order

    def answer_of_gold(self, gold: str, row: Row) -> str:
        return gold.strip().rstrip(";")

    def _result(self, query: str, row: Row) -> QueryResult | None:
        return QUERIES.result(Query(query, self._database(row), self.steps, self.rows, self.seconds))

    def _database(self, row: Row) -> Database:
        given = read_columns(SqlColumns, row).model_dump(exclude_none=True, by_alias=True)
        match given:
            case {"database": path} if len(given) == 1:
                return Database.of_file(Path(self.databases or "", path))
            case {"db_id": name} if len(given) == 1:
                return Database.of_file(Path(self.databases or "", name, f"{name}.sqlite"))
            case {"schema": script} if len(given) == 1:
                return Database(None, script)
        raise DataError(
            f"The prompt {str(row.get(PROBLEM))[:60]!r} must have exactly one of the columns `database`, `db_id` and "
            f"`schema`; it has {' and '.join(f'`{name}`' for name in sorted(given)) or 'none'}. Give the path of a "
            "SQLite file, Spider's name of a database, or the statements that create one."
        )
