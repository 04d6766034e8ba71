"""The kinds of answers that ship, each in a module or package. Importing this package registers them."""

from restrain_openrlhf.answers.kinds import (  # noqa: F401
    choice,
    code,
    embedding,
    json_value,
    judge,
    mathematics,
    mixed,
    number,
    sql,
    text,
)
