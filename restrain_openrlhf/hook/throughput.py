"""Tokens per second of a training step, from the tokens that we count and the times that the host takes."""

from collections.abc import Mapping

from restrain_openrlhf.hook.group_columns import GENERATED
from restrain_openrlhf.run.metrics import TRAINED_TOKENS

# Of the host, in seconds (trainer/ppo_trainer.py and ppo_trainer_async.py).
GENERATION, TRAINING = "timing/generation", "timing/ppo_train"
GENERATED_PER_SECOND = "restrain/generated_tokens_per_second"
TRAINED_PER_SECOND = "restrain/trained_tokens_per_second"
SPEEDS = {GENERATED_PER_SECOND: (GENERATED, GENERATION), TRAINED_PER_SECOND: (TRAINED_TOKENS, TRAINING)}


def tokens_per_second(numbers: Mapping[str, float]) -> dict[str, float]:
    """Response tokens generated and trained on, per second; what a step did not do, or took no time, is left out."""
    return {
        name: numbers[tokens] / numbers[seconds]
        for name, (tokens, seconds) in SPEEDS.items()
        if tokens in numbers and numbers.get(seconds)
    }
