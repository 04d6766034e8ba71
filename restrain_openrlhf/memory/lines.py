"""One line of a memory table: what is held, when, its formula with the numbers in it, and its bytes."""

from dataclasses import dataclass
from enum import StrEnum

GIB = 2**30


class Phase(StrEnum):
    """A stretch of one training step that has a peak of its own, on one kind of GPU."""

    GENERATION = "generation"
    REFERENCE = "reference"
    EXPERIENCE = "experience"
    BACKWARD = "backward"
    STEP = "optimizer step"
    SYNC = "weight sync"


@dataclass(frozen=True)
class Line:
    """`bytes` on each GPU of the phases. `certain`: held whatever the batch; else an estimate."""

    name: str
    formula: str
    bytes: int
    phases: tuple[Phase, ...] = ()
    certain: bool = False


def product(*factors: int, divisor: int = 1) -> tuple[str, int]:
    """The formula `a × b / d`, and its value rounded up."""
    value = 1
    for factor in factors:
        value *= factor
    text = " × ".join(f"{factor:,}" for factor in factors) + (f" / {divisor:,}" if divisor > 1 else "")
    return text, -(-value // divisor)
