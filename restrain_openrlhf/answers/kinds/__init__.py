"""The kinds of answers that ship, a file each; importing this package registers them."""

from restrain_openrlhf.answers.kinds import judge, mathematics, mixed, sql  # noqa: F401
