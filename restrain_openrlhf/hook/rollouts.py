"""Draws a training group's rollouts as the method plans them, in the host's rollout actors; evaluation stays plain."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache
from typing import Any

from restrain_openrlhf.errors import HookNotActiveError
from restrain_openrlhf.hook.carried import carry, carry_place, in_dispatch_order
from restrain_openrlhf.hook.patches import original_of
from restrain_openrlhf.hook.progress import Progress, progress_of
from restrain_openrlhf.hook.rollout_engine import PlannedEngine, SeededEngine
from restrain_openrlhf.hook.rollout_size import refuse_other_size
from restrain_openrlhf.hook.seeds import Visit, visit
from restrain_openrlhf.hook.settings import HookSettings
from restrain_openrlhf.method import build
from restrain_openrlhf.rollouts import RolloutPlan


class TrainingPrompt(str):
    """A prompt whose rollouts are trained on; the host passes it through to its rollout actors as it is."""

    visit: Visit | None = None


@cache
def plan_for(settings: HookSettings) -> RolloutPlan | None:
    """The method's plan; None for plain sampling."""
    return build(settings.method).rollouts


def generate_samples(wrapped: Callable[..., Any], generator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Wraps SamplesGenerator.generate_samples (samples_generator.py): what is dispatched within is for training.

    After the run's last step there is nothing more to train on, which ends the host's loops (PPOTrainer.fit).
    """
    progress, settings = progress_of(generator), HookSettings.from_environment()
    if settings.steps is not None and progress.steps >= settings.steps:
        return [], None, 0, True
    generator.restrain_training = True
    try:
        samples, *rest = wrapped(*args, **kwargs)
    finally:
        generator.restrain_training = False
    progress.steps += bool(samples)
    if settings.seeded_rollouts:
        samples = in_dispatch_order(samples)
    return samples, *rest


def dispatch_prompts(wrapped: Callable[..., Any], generator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Wraps SamplesGenerator._dispatch_prompts_to_vllm, which training and evaluation share: marks training's."""
    prompts: Sequence[str] = args[0] if args else kwargs.pop("prompts")
    if getattr(generator, "restrain_training", False):
        seeded, train_seed = HookSettings.from_environment().seeded_rollouts, generator.args.train.seed
        prompts = [marked(prompt, progress_of(generator), train_seed if seeded else None) for prompt in prompts]
    return wrapped(prompts, *args[1:], **kwargs)


def marked(prompt: str, progress: Progress, train_seed: int | None) -> TrainingPrompt:
    """The prompt as one of training's, counted among all that the run has dispatched, and seeded if asked."""
    training = TrainingPrompt(prompt)
    if train_seed is not None:
        training.visit = visit(train_seed, progress.prompts)
    progress.prompts += 1
    return training


async def initialise(actor: Any, *args: Any, **kwargs: Any) -> None:
    """Takes the place of RolloutRayActor.__init__: log-probabilities are those of the distribution that is sampled.

    vLLM would give those before the temperature, which the policy's never are (models/actor.py).
    """
    kwargs.setdefault("logprobs_mode", "processed_logprobs")
    await original_of(actor, "__init__")(actor, *args, **kwargs)


async def generate_responses(
    actor: Any,
    prompt: str,
    label: str,
    sampling_params: Any,
    max_length: int,
    hf_tokenizer: Any,
    num_samples: int = 1,
    images: Any = None,
) -> list[dict[str, Any]]:
    """Takes the place of RolloutRayActor.generate_responses (trainer/ray/vllm_engine.py), which it calls itself.

    For evaluation that is all. With a plan or seeds, the host's method runs over a stand-in that hands it the plan's
    rollouts or seeds its own, so that tokenizing, rewards and bookkeeping stay the host's.
    """
    host_method = original_of(actor, "generate_responses")
    host_arguments = {
        "label": label,
        "sampling_params": sampling_params,
        "max_length": max_length,
        "hf_tokenizer": hf_tokenizer,
        "images": images,
    }
    if not isinstance(prompt, TrainingPrompt):
        plain: list[dict[str, Any]] = await host_method(actor, prompt=prompt, num_samples=num_samples, **host_arguments)
        return plain
    host_arguments["sampling_params"] = with_log_probs(sampling_params)
    plan = plan_for(HookSettings.from_environment())
    seed = prompt.visit.seed if prompt.visit else None
    host_arguments["prompt"] = str(prompt)
    responses: list[dict[str, Any]]
    if plan is None:
        drawer = actor if seed is None else SeededEngine(actor, seed)
        responses = await host_method(drawer, num_samples=num_samples, **host_arguments)
    else:
        refuse_other_size(plan, num_samples)
        engine = PlannedEngine(actor, plan, hf_tokenizer, seed)
        responses = await host_method(engine, num_samples=plan.trained, **host_arguments)
        entropies = [chain.mean_entropy for chain in await engine.trained()] if plan.top_k else None
        carry(responses, entropies, await engine.votes_beside())
    if prompt.visit:
        carry_place(responses, prompt.visit.place)
    return responses


def with_log_probs(parameters: Any) -> Any:
    """vLLM's parameters that also ask for each sampled token's log-probability (hook/logprob_gap.py), and for no text.

    The host reads tokens alone of a single turn (utils/agent.py); turning each into text takes most of the time that
    log-probabilities cost.
    """
    asked = deepcopy(parameters)
    asked.logprobs = asked.logprobs or 0
    asked.detokenize = False
    return asked


def refuse_undrawn(plan: RolloutPlan | None, has_entropies: bool) -> None:
    """Raises HookNotActiveError where the plan measures entropies and the rollouts came without."""
    if plan is not None and plan.top_k and not has_entropies:
        raise HookNotActiveError(
            "The rollouts carry no token entropies, so the rollout actors that drew them are not hooked. Every Ray "
            "node needs restrain-openrlhf installed, and the run must be started with `restrain train` or "
            "`python -m restrain_openrlhf.hook.train_ppo_ray`."
        )
