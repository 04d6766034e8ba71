"""Groups answers into classes of equal ones."""

from collections.abc import Sequence

from restrain_openrlhf.answers.keys import canonical_key


def classes(answers: Sequence[str | None]) -> list[int | None]:
    """Each answer's class, numbered in order of first appearance; None for a missing answer."""
    numbers: dict[str, int] = {}
    return [None if answer is None else numbers.setdefault(canonical_key(answer), len(numbers)) for answer in answers]
