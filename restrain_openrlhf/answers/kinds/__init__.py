"""The kinds of answers that ship, a file or a folder each; importing this package registers them."""

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
