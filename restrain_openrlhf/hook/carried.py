"""What a rollout carries from the process that drew it to the one that scores it, besides its tokens."""

from collections.abc import Callable, Sequence
from typing import Any

# A number per rollout travels in the host's own extra_logs, which become Experience.info (samples_generator.py).
ENTROPY = "restrain/entropy"
# Answers are text, which extra_logs cannot carry; they are in the response beside the host's keys.
VOTES = "restrain_votes"


def carry(responses: list[dict[str, Any]], entropies: Sequence[float] | None, votes: Sequence[str | None]) -> None:
    """Put each rollout's mean token entropy, and the answers that only vote, into the host's responses."""
    for index, response in enumerate(responses):
        response[VOTES] = tuple(votes)
        if entropies is not None:
            response["extra_logs"] = {**response["extra_logs"], ENTROPY: entropies[index]}


def keep_votes(wrapped: Callable[..., Any], _generator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Wraps SamplesGenerator._process_response_into_experience: the voters' answers stay with the Experience.

    They are an attribute beside its fields, which the host's batching leaves behind: they are read before it.
    """
    experience = wrapped(*args, **kwargs)
    response = args[0] if args else kwargs["response"]
    setattr(experience, VOTES, response.get(VOTES, ()))
    return experience


def votes_beside(sample: Any) -> tuple[str | None, ...]:
    """Answers of this group's rollouts that only voted."""
    votes: tuple[str | None, ...] = getattr(sample, VOTES, ())
    return votes


def entropies_of(samples: Sequence[Any]) -> tuple[float, ...] | None:
    """H_i of each rollout in nats, None where they were not measured."""
    if any(ENTROPY not in sample.info for sample in samples):
        return None
    return tuple(float(sample.info[ENTROPY].item()) for sample in samples)
