"""The kinds of answers that ship, a file or a folder each; importing this package registers them."""

from restrain_openrlhf.answers.kinds import code, embedding, judge, mathematics, mixed, sql  # noqa: F401
