"""How far a run has come, counted on from its checkpoint, and the seeds that follow from that alone."""

import hashlib
from dataclasses import dataclass
from weakref import WeakKeyDictionary


@dataclass(frozen=True)
class Visit:
    """One visit of training to a prompt: the `place`-th since the run began, and the seed of its group."""

    place: int
    seed: int


@dataclass
class Progress:
    """Training steps (rollout batches) and prompts drawn since the run began, however often it was started."""

    steps: int = 0
    prompts: int = 0

    def next_visit(self, train_seed: int) -> Visit:
        """Of the prompt that is dispatched now: another at every visit to the same prompt."""
        place, self.prompts = self.prompts, self.prompts + 1
        return Visit(place, _seed("prompt", train_seed, place))


# By the host's sample generator. Filled anew where it goes on from a checkpoint (hook/logging/trainer.py).
PROGRESS: WeakKeyDictionary[object, Progress] = WeakKeyDictionary()


def progress_of(generator: object) -> Progress:
    """The count that goes with the host's sample generator."""
    return PROGRESS.setdefault(generator, Progress())


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
