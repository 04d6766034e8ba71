"""What a rollout carries from the process that drew it to the one that scores it, besides its tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from restrain_openrlhf.errors import HookNotActiveError

# A number per rollout travels in the host's own extra_logs, which become Experience.info (samples_generator.py).
ENTROPY = "restrain/entropy"
# A Vote has text, which extra_logs cannot carry; they are in the response beside the host's keys.
VOTES = "restrain_votes"
# A prompt's place among all that the run dispatched, where its rollouts are seeded.
PLACE = "restrain_place"


@dataclass(frozen=True)
class Vote:
    """A rollout that only votes: its final answer (None: missing or truncated), and whether it was truncated."""

    answer: str | None
    truncated: bool


def carry(responses: list[dict[str, Any]], entropies: Sequence[float] | None, votes: Sequence[Vote]) -> None:
    """Put each rollout's mean token entropy, and the rollouts that only vote, into the host's responses."""
    for index, response in enumerate(responses):
        response[VOTES] = tuple(votes)
        if entropies is not None:
            response["extra_logs"] = {**response["extra_logs"], ENTROPY: entropies[index]}


def carry_place(responses: list[dict[str, Any]], place: int) -> None:
    """Put the prompt's place among all that were dispatched into the host's responses."""
    for response in responses:
        response[PLACE] = place


def keep_votes(wrapped: Callable[..., Any], _generator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Wraps SamplesGenerator._process_response_into_experience: the votes and the place stay with it.

    They are attributes beside its fields, which the host's batching leaves behind: they are read before it.
    """
    experience = wrapped(*args, **kwargs)
    response = args[0] if args else kwargs["response"]
    setattr(experience, VOTES, response.get(VOTES, ()))
    setattr(experience, PLACE, response.get(PLACE))
    return experience


def votes_beside(sample: Any) -> tuple[Vote, ...]:
    """This group's rollouts that only voted."""
    votes: tuple[Vote, ...] = getattr(sample, VOTES, ())
    return votes


def in_dispatch_order(samples: Sequence[Any]) -> list[Any]:
    """Rollouts as their prompts were dispatched; the host has them as their groups were completed.

    Raises HookNotActiveError where they were drawn without a place.
    """
    if any(getattr(sample, PLACE, None) is None for sample in samples):
        raise HookNotActiveError(
            "seeded_rollouts is on and the rollouts were drawn without seeds, so the rollout actors that drew them are "
            "not hooked. Every Ray node needs this restrain-openrlhf installed, and the run must be started with "
            "`restrain train` or `python -m restrain_openrlhf.hook.train_ppo_ray`."
        )
    return sorted(samples, key=lambda sample: int(getattr(sample, PLACE)))


def entropies_of(samples: Sequence[Any]) -> tuple[float, ...] | None:
    """H_i of each rollout in nats, None where they were not measured."""
    if any(ENTROPY not in sample.info for sample in samples):
        return None
    return tuple(float(sample.info[ENTROPY].item()) for sample in samples)
