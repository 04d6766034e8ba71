"""Every seed of a run with `seeded_rollouts`: from train.seed and a place, never from time or order of completion."""

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Visit:
    """One visit of training to a prompt: the `place`-th since the run began, and the seed of its group."""

    place: int
    seed: int


def visit(train_seed: int, place: int) -> Visit:
    """The run's `place`-th dispatched prompt, which is another at every visit to the same prompt."""
    return Visit(place, _seed("prompt", train_seed, place))


def rollout_seed(group_seed: int, place: int) -> int:
    """For the rollout at `place` in its group; rollouts of equal seeds would be equal."""
    return _seed("rollout", group_seed, place)


def shuffle_seed(train_seed: int, optimizer_steps: int) -> int:
    """For what a policy process draws in the training step that begins after so many optimizer steps."""
    return _seed("shuffle", train_seed, optimizer_steps)


def _seed(use: str, *numbers: int) -> int:
    """63 bits: torch and vLLM take a seed as a signed 64-bit number."""
    digest = hashlib.sha256(":".join([use, *map(str, numbers)]).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
