"""Wraps the host's SamplesGenerator and the start of its rollout actors: the run's end, seeds, order and tokenizer."""

from collections.abc import Callable
from typing import Any

from restrain_openrlhf.hook.install.environment import config_here
from restrain_openrlhf.hook.rollout import held_weights
from restrain_openrlhf.hook.rollout.group_columns import PLACE
from restrain_openrlhf.hook.rollout.sent_tokenizer import tokenizer_by_reference
from restrain_openrlhf.hook.rollout.training_data import PROGRESS, Progress, with_visits
from restrain_openrlhf.machine.patching import original_of

LABELS_POSITION = 1


def generate_samples(wrapped: Callable[..., Any], generator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Wraps SamplesGenerator.generate_samples (samples_generator.py): one training step's rollouts.

    After the last step it returns no samples, which ends the host's loops (PPOTrainer.fit).
    """
    progress, config = PROGRESS.setdefault(generator, Progress()), config_here()
    if config.steps is not None and progress.steps >= config.steps:
        return [], None, 0, True
    samples, *rest = wrapped(*args, **kwargs)
    progress.steps += bool(samples)
    if config.seeded_rollouts:
        # Sort by the order of dispatch. The host returns groups in the order in which they were completed.
        samples = sorted(samples, key=lambda sample: int(sample.info[PLACE].item()))
    return samples, *rest


def dispatch_prompts(wrapped: Callable[..., Any], generator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Wraps SamplesGenerator._dispatch_prompts_to_vllm: sends a reference to the tokenizer, and seeds prompts."""
    if config_here().seeded_rollouts:
        progress = PROGRESS.setdefault(generator, Progress())
        numbered = with_visits(args[LABELS_POSITION], progress, generator.args.train.seed)
        args = (*args[:LABELS_POSITION], numbered, *args[LABELS_POSITION + 1 :])
    with tokenizer_by_reference(generator):
        return wrapped(*args, **kwargs)


async def initialise(actor: Any, *args: Any, **kwargs: Any) -> None:
    """Replaces RolloutRayActor.__init__, so that log-probabilities are those of the sampled distribution.

    By default vLLM returns them before the temperature is applied, but the policy's are after it (models/actor.py). The
    limits of the engine, which OpenRLHF leaves at vLLM's default of 128 rollouts, come from `engine:`. With
    `weight_digests`, weight syncs are watched.
    """
    config = config_here()
    kwargs = {"logprobs_mode": "processed_logprobs", **config.engine.options(), **kwargs}
    await original_of(actor, "__init__")(actor, *args, **kwargs)
    if config.weight_digests:
        held_weights.watch(actor.llm)
