"""Random draws that are the same for the same text, in every process and version of Python."""

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Draws:
    """Of `random` only `random()` is used, whose numbers Python promises not to change."""

    def __init__(self, text: str) -> None:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        self._source = random.Random(int.from_bytes(digest))

    def below(self, end: int) -> int:
        """A whole number from 0 to `end` - 1."""
        return int(self._source.random() * end)

    def pick(self, items: Sequence[Item]) -> Item:
        """One of them."""
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        """All of them in another order."""
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in items]
