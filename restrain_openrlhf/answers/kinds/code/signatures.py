"""From the outcomes of a group's programs on the same inputs to what makes two programs equal."""

from collections.abc import Sequence

from restrain_openrlhf.machine.sandbox.program import RETURNED

Outcomes = tuple[str, ...]
FAILED = "!"


def returns(outcome: str) -> bool:
    """Whether the program returned or printed something on this input."""
    return outcome.startswith(RETURNED)


def comparable(programs: Sequence[Outcomes | None]) -> list[int]:
    """The inputs, by their place, on which at most half of the group's programs fail.

    What most programs fail on is no input that the prompt allows. Programs that fail everywhere do not count, and None
    is a program that was not run.
    """
    counted = [outcomes for outcomes in programs if outcomes and any(map(returns, outcomes))]
    if not counted:
        return []
    columns = zip(*counted, strict=True)
    return [place for place, column in enumerate(columns) if 2 * sum(map(returns, column)) >= len(column)]


def signatures(programs: Sequence[Outcomes | None]) -> list[Outcomes | None]:
    """Each program's outcomes on the comparable inputs, failures all alike; None where it fails on all of them.

    The inputs are the same for the whole group, and signatures are compared as they are. So equality is reflexive,
    symmetric and transitive.
    """
    places = comparable(programs)
    restricted = [outcomes and tuple(outcomes[place] for place in places) for outcomes in programs]
    return [_alike(outcomes) if outcomes and any(map(returns, outcomes)) else None for outcomes in restricted]


def _alike(outcomes: Outcomes) -> Outcomes:
    return tuple(outcome if returns(outcome) else FAILED for outcome in outcomes)
