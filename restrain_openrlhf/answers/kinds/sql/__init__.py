"""The kind `sql`: queries are equal if they return the same rows from the prompt's database."""

from restrain_openrlhf.answers.kinds.sql.kind import Sql

__all__ = ["Sql"]
