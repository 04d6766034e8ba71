"""Why a host process ended, from what it printed: our own error, else the exception it died of, else its last lines."""

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

TRACEBACK = "Traceback (most recent call last):"
# Ray copies what its workers print, in colour or not; it goes on doing so after the driver's own traceback.
FROM_A_WORKER = ("\x1b[", "(")


def error_tail(log: Path, since: int = 0, lines: int = 12) -> str:
    """What the part of `log` from byte `since` on says went wrong."""
    with log.open("rb") as file:
        file.seek(since)
        printed = file.read().decode(errors="replace").splitlines()
    ours = [line for line in printed if "restrain_openrlhf.errors." in line or line.startswith("error: ")]
    return "\n".join(ours[-1:] or _exception(printed) or printed[-lines:])


def _exception(printed: Sequence[str]) -> list[str]:
    """The lines of the last traceback that are no frames: the exception and its message."""
    if TRACEBACK not in printed:
        return []
    start = len(printed) - printed[::-1].index(TRACEBACK)
    ours = takewhile(lambda line: not line.startswith(FROM_A_WORKER), printed[start:])
    return [line for line in ours if line.strip() and not line.startswith(" ")]
