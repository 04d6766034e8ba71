"""The kinds of answers that ship, a file each; importing this package registers them."""

from restrain_openrlhf.answers.kinds import choice, json_value, mathematics, number, text  # noqa: F401
