"""Everything of the host that the hook relies on, written down and checked against what is installed."""

import importlib
import inspect
from collections.abc import Iterable
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from restrain_openrlhf.errors import HostError

SUPPORTED_OPENRLHF = ("0.11.2",)


@dataclass(frozen=True)
class HostMethod:
    """A host method the hook wraps: `module` and `qualname` name it, `parameters` are its parameters, in order."""

    module: str
    qualname: str
    parameters: tuple[str, ...]


# Where the hook took a method's place on an actor class, the host's own stays there under this prefix.
ORIGINAL = "_restrain_original_"

ENTRY_POINT = "openrlhf.cli.train_ppo_ray"
EXPERIENCE_MAKER = "openrlhf.trainer.ppo_utils.experience_maker"
PPO_TRAINER = "openrlhf.trainer.ppo_trainer"
PPO_TRAINER_ASYNC = "openrlhf.trainer.ppo_trainer_async"
PPO_ACTOR = "openrlhf.trainer.ray.ppo_actor"
LAUNCHER = "openrlhf.trainer.ray.launcher"
SAMPLES = "openrlhf.trainer.ppo_utils.samples_generator"
VLLM_ENGINE = "openrlhf.trainer.ray.vllm_engine"
PROMPTS_DATASET = "openrlhf.datasets.prompts_dataset"
STRATEGY = "openrlhf.utils.deepspeed.deepspeed"

WRAPPED = (
    HostMethod(EXPERIENCE_MAKER, "RemoteExperienceMaker.make_experience_batch", ("self", "rollout_samples")),
    HostMethod(PPO_TRAINER, "BasePPOTrainer.train_step", ("self", "rollout_samples", "global_step")),
    HostMethod(PPO_ACTOR, "ActorPPOTrainer.ppo_train", ("self", "kl_ctl")),
    HostMethod(PPO_ACTOR, "ActorPPOTrainer.training_step", ("self", "experience", "kl_ctl", "step", "loss_batch_info")),
    HostMethod(SAMPLES, "SamplesGenerator.generate_samples", ("self", "generate_kwargs")),
    HostMethod(
        SAMPLES,
        "SamplesGenerator._dispatch_prompts_to_vllm",
        ("self", "prompts", "labels", "images", "generate_kwargs"),
    ),
    HostMethod(SAMPLES, "SamplesGenerator._process_response_into_experience", ("self", "response", "generate_kwargs")),
)
# Methods of Ray actor classes, which are looked up on the class that Ray keeps behind the actor.
REPLACED = (
    HostMethod(PPO_TRAINER, "PPOTrainer.fit", ("self", "global_step")),
    HostMethod(PPO_TRAINER, "PPOTrainer.get_max_steps", ("self",)),
    HostMethod(PPO_TRAINER, "BasePPOTrainer.init_checkpoint_states", ("self",)),
    HostMethod(
        PPO_TRAINER,
        "PPOTrainer.save_best_checkpoint",
        ("self", "eval_metrics", "global_step", "client_states"),
    ),
    HostMethod(
        VLLM_ENGINE,
        "RolloutRayActor.generate_responses",
        (
            "self",
            "prompt",
            "label",
            "sampling_params",
            "max_length",
            "hf_tokenizer",
            "num_samples",
            "images",
        ),
    ),
    HostMethod(
        VLLM_ENGINE,
        "RolloutRayActor.__init__",
        ("self", "args", "bundle_indices", "agent_func_path", "remote_rm_url", "mm_pad_token_ids", "kwargs"),
    ),
    HostMethod(
        VLLM_ENGINE, "RolloutRayActor.generate", ("self", "prompt_token_ids", "sampling_params", "multi_modal_data")
    ),
)
CALLED = (
    HostMethod(
        "openrlhf.models.loss",
        "PolicyLoss.forward",
        (
            "self",
            "log_probs",
            "old_log_probs",
            "advantages",
            "action_mask",
            "rollout_log_probs",
            "dp_size",
            "batch_num_tokens",
            "global_batch_size",
        ),
    ),
    HostMethod(
        PPO_ACTOR,
        "compute_approx_kl",
        ("log_probs", "log_probs_base", "log_probs_old", "kl_estimator", "unbiased_gradient"),
    ),
    HostMethod(LAUNCHER, "RayActorGroup.async_init_model_from_pretrained", ("self", "args", "kwargs")),
    HostMethod(
        STRATEGY,
        "DeepspeedStrategy.save_ckpt",
        (
            "self",
            "model",
            "save_dir",
            "tag",
            "max_num",
            "max_mem",
            "client_state",
            "save_latest",
            "metric_value",
            "metric_key",
        ),
    ),
    HostMethod(
        PROMPTS_DATASET,
        "preprocess_data",
        (
            "data",
            "input_template",
            "input_key",
            "label_key",
            "apply_chat_template",
        ),
    ),
)
ALL = (*WRAPPED, *REPLACED, *CALLED)
# openrlhf/trainer/ppo_utils/experience.py
EXPERIENCE_FIELDS = frozenset(
    {"sequences", "action_mask", "advantages", "rewards", "truncated", "prompts", "labels", "info"}
)


def check_version() -> str:
    """The installed OpenRLHF's version. Raises HostError where it is absent or not one the hook was written for."""
    supported = " or ".join(SUPPORTED_OPENRLHF)
    try:
        found = version("openrlhf")
    except PackageNotFoundError:
        raise HostError(f"OpenRLHF is not installed. Install openrlhf {supported}.") from None
    if found not in SUPPORTED_OPENRLHF:
        raise HostError(
            f"OpenRLHF {found} is installed; the hook was written for {supported}. Install openrlhf=={supported}, "
            "or a restrain-openrlhf release made for this version."
        )
    return found


def check_all() -> None:
    """Import every host module relied on and check it. Takes seconds; used by `restrain doctor` and by the tests."""
    check_version()
    check_methods(ALL)
    check_experience(importlib.import_module("openrlhf.trainer.ppo_utils.experience").Experience)


def check_module(module: str) -> None:
    """Check what is relied on in one host module, as it is imported. Raises HostError naming what differs."""
    check_methods(method for method in ALL if method.module == module)


def check_methods(methods: Iterable[HostMethod]) -> None:
    """Raises HostError for the first method that is missing or takes other parameters."""
    for method in methods:
        found = _parameters(method)
        if found != method.parameters:
            raise HostError(
                f"{method.module}.{method.qualname} takes {found}; the hook was written for {method.parameters}. "
                f"Install openrlhf=={SUPPORTED_OPENRLHF[-1]} unchanged."
            )


def _parameters(method: HostMethod) -> tuple[str, ...]:
    target: Any = importlib.import_module(method.module)
    for part in method.qualname.split("."):
        owner = _behind_actor(target)
        target = getattr(owner, ORIGINAL + part, None) or getattr(owner, part, None)
        if target is None:
            raise HostError(
                f"{method.module} has no {method.qualname}, which the hook relies on. "
                f"Install openrlhf=={SUPPORTED_OPENRLHF[-1]} unchanged."
            )
    target = _behind_actor(target)
    # Ray adds a parameter of its own to the methods of actor classes (_ray_trace_ctx).
    return tuple(name for name in inspect.signature(target).parameters if not name.startswith("_ray_"))


def _behind_actor(target: Any) -> Any:
    """The plain class of a Ray actor class; anything else as it is."""
    metadata = getattr(target, "__ray_metadata__", None)
    return target if metadata is None else metadata.modified_class


def check_experience(experience_type: type) -> None:
    """Raises HostError when the host's Experience lost a field the hook reads or writes."""
    missing = EXPERIENCE_FIELDS - {field.name for field in fields(experience_type)}
    if missing:
        raise HostError(f"OpenRLHF's Experience has no field {sorted(missing)}, which the hook relies on.")
