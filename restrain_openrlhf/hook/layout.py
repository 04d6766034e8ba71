"""Layouts that OpenRLHF refuses, or hangs on, only once a cluster is up: refused from the flags alone, before that."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from restrain_openrlhf.errors import ConfigError

Flags = Mapping[str, Any]

COUNTS = (
    "actor.num_nodes",
    "actor.num_gpus_per_node",
    "vllm.num_engines",
    "vllm.tensor_parallel_size",
    "ds.ring_attn_size",
    "ds.tensor_parallel_size",
    "rollout.batch_size",
    "rollout.micro_batch_size",
    "rollout.n_samples_per_prompt",
    "train.batch_size",
    "train.micro_batch_size",
)
# The ZeRO stage that partitions parameters, and heeds ds.zpg.
PARTITIONED = 3
OF_REFERENCE = ("ref.num_nodes", "ref.num_gpus_per_node")


@dataclass(frozen=True)
class Shape:
    """GPUs of policy, reference policy (0 without KL) and vLLM; GPUs of one data-parallel rank; rollouts of a step."""

    policy: int
    reference: int
    rollout: int
    gpus_per_rank: int
    rollouts: int

    @classmethod
    def of(cls, flags: Flags) -> Self:
        """From OpenRLHF's flags under their dotted names."""
        return cls(
            policy=flags["actor.num_nodes"] * flags["actor.num_gpus_per_node"],
            reference=flags["ref.num_nodes"] * flags["ref.num_gpus_per_node"] if flags["algo.kl.init_coef"] else 0,
            rollout=flags["vllm.num_engines"] * flags["vllm.tensor_parallel_size"],
            gpus_per_rank=flags["ds.ring_attn_size"] * flags["ds.tensor_parallel_size"],
            rollouts=flags["rollout.batch_size"] * flags["rollout.n_samples_per_prompt"],
        )

    @property
    def ranks(self) -> int:
        """Data-parallel ranks of the policy."""
        return self.policy // self.gpus_per_rank


def refuse_impossible(flags: Flags) -> None:
    """Raises ConfigError for the first reason why OpenRLHF could not run with these flags (dotted names, as parsed).

    The reasons are those of cli/train_ppo_ray.py, trainer/ray/launcher.py and DeepSpeed's batch sizes.
    """
    _refuse_missing(flags)
    shape = Shape.of(flags)
    for check in CHECKS:
        reason = check(flags, shape)
        if reason:
            raise ConfigError(reason)


def _refuse_missing(flags: Flags) -> None:
    for name in (*COUNTS, *(OF_REFERENCE if flags["algo.kl.init_coef"] else ())):
        if (flags[name] or 0) < 1:
            raise ConfigError(f"{name} is {flags[name]}, and must be 1 or more. Set it.")


def _other_reference(flags: Flags, shape: Shape) -> str | None:
    colocated = next((name for name in ("train.colocate_all", "train.colocate_actor_ref") if flags[name]), None)
    same = all(flags[f"actor.{name}"] == flags[f"ref.{name}"] for name in ("num_nodes", "num_gpus_per_node"))
    if not colocated or not shape.reference or same:
        return None
    nodes, gpus = flags["actor.num_nodes"], flags["actor.num_gpus_per_node"]
    return (
        f"{colocated} puts policy and reference policy on the same GPUs, and the policy has {nodes} nodes of {gpus}, "
        f"the reference policy {flags['ref.num_nodes']} of {flags['ref.num_gpus_per_node']}. Set ref.num_nodes to "
        f"{nodes} and ref.num_gpus_per_node to {gpus}."
    )


def _other_engines(flags: Flags, shape: Shape) -> str | None:
    if not flags["train.colocate_all"] or flags["train.async_enable"] or shape.policy == shape.rollout:
        return None
    size = flags["vllm.tensor_parallel_size"]
    remedy = (
        f"Set vllm.num_engines to {shape.policy // size}"
        if shape.policy % size == 0
        else "Make actor.num_nodes * actor.num_gpus_per_node a multiple of vllm.tensor_parallel_size"
    )
    return (
        f"train.colocate_all puts policy and vLLM on the same GPUs, and the policy has {shape.policy} "
        f"(actor.num_nodes * actor.num_gpus_per_node), vLLM {shape.rollout} (vllm.num_engines * "
        f"vllm.tensor_parallel_size). {remedy}."
    )


def _broken_ranks(flags: Flags, shape: Shape) -> str | None:
    for part, gpus in (("actor", shape.policy), ("ref", shape.reference)):
        if gpus % shape.gpus_per_rank:
            return (
                f"{part}.num_nodes * {part}.num_gpus_per_node is {gpus}, no multiple of ds.ring_attn_size * "
                f"ds.tensor_parallel_size = {shape.gpus_per_rank}, the GPUs of one rank. Change one of them."
            )
    if (
        flags["ds.zero_stage"] == PARTITIONED
        and flags["ds.zpg"] > 1
        and shape.policy % min(flags["ds.zpg"], shape.policy)
    ):
        return f"ds.zpg is {flags['ds.zpg']} and does not divide the policy's {shape.policy} GPUs. Change one of them."
    return None


def _only_asynchronous(flags: Flags, _shape: Shape) -> str | None:
    """The host turns vllm.enable_sleep off by itself where nothing is colocated."""
    if flags["train.async_enable"]:
        if flags["train.colocate_all"] and flags["vllm.enable_sleep"]:
            return (
                "vllm.enable_sleep and train.async_enable are set: engines that draw while the policy trains cannot "
                "sleep. Remove one of the two."
            )
        return None
    if flags["train.partial_rollout_enable"]:
        return "train.partial_rollout_enable is set without train.async_enable. Set both, or neither."
    drawn, taken = flags["rollout.vllm_generate_batch_size"], flags["rollout.batch_size"]
    if drawn and drawn > taken:
        return (
            f"rollout.vllm_generate_batch_size is {drawn}, above rollout.batch_size {taken}; only train.async_enable "
            "can keep the rest for the next step. Lower it, or leave it out."
        )
    return None


def _short_steps(flags: Flags, _shape: Shape) -> str | None:
    """A step takes what was drawn at once (trainer/ppo_utils/samples_generator.py, generate_samples)."""
    drawn, taken = flags["rollout.vllm_generate_batch_size"], flags["rollout.batch_size"]
    if drawn and drawn < taken:
        return (
            f"rollout.vllm_generate_batch_size is {drawn}, below rollout.batch_size {taken}: OpenRLHF would take every "
            f"step from the rollouts of {drawn} prompts, and its optimizer steps and schedule are counted for {taken}. "
            "Leave rollout.vllm_generate_batch_size out, or lower rollout.batch_size to it."
        )
    return None


def _idle_ranks(flags: Flags, shape: Shape) -> str | None:
    """The host hands micro-batches of rollouts to ranks, and a rank without any ends the run."""
    size = flags["rollout.micro_batch_size"]
    have = f"rollout.batch_size * rollout.n_samples_per_prompt is {shape.rollouts}, "
    if shape.rollouts // size < shape.ranks:
        return (
            f"{have}{shape.rollouts // size} micro-batches of rollout.micro_batch_size {size} for the policy's "
            f"{shape.ranks} ranks. Lower rollout.micro_batch_size to {shape.rollouts // shape.ranks} or less, or raise "
            "rollout.batch_size."
        )
    dynamic = flags["train.dynamic_batch_enable"]
    reference = shape.reference // shape.gpus_per_rank
    # With dynamic batches there may be as few as the policy has ranks.
    if reference > (shape.ranks if dynamic else -(-shape.rollouts // size)):
        return (
            f"The reference policy has {reference} ranks, more than there may be micro-batches of rollouts. Lower "
            "ref.num_nodes or ref.num_gpus_per_node."
        )
    if not dynamic and shape.ranks > 1 and shape.rollouts % (size * shape.ranks):
        return (
            f"{have}no multiple of rollout.micro_batch_size {size} times the policy's {shape.ranks} ranks: ranks would "
            "have different numbers of rollouts and wait for each other forever. Change one of them."
        )
    return None


def _states_that_stay(flags: Flags, _shape: Shape) -> str | None:
    """DeepSpeed's optimizers of ZeRO 1 to 3 alone can move their states (offload_states)."""
    if flags["ds.enable_sleep"] and flags["ds.zero_stage"] == 0 and not flags["ds.adam_offload"]:
        return "ds.enable_sleep is set with ds.zero_stage 0, whose states stay on the GPU. Set ds.zero_stage to 2 or 3."
    return None


def _uneven_steps(flags: Flags, shape: Shape) -> str | None:
    batch, dynamic = flags["train.batch_size"], flags["train.dynamic_batch_enable"]
    # DeepSpeed's own sum of a batch: micro-batches of every rank, none of them cut.
    piece = shape.ranks if dynamic else shape.ranks * flags["train.micro_batch_size"]
    if batch % piece:
        times = "" if dynamic else f" times train.micro_batch_size {flags['train.micro_batch_size']}"
        return (
            f"train.batch_size is {batch}, no multiple of the policy's {shape.ranks} ranks{times}. Change one of them."
        )
    if shape.rollouts % batch:
        return (
            f"A step has {shape.rollouts} rollouts (rollout.batch_size * rollout.n_samples_per_prompt), no multiple of "
            f"train.batch_size {batch}: what is left over would be trained on in another step, or not at all. Set "
            f"train.batch_size to {shape.rollouts}, or to a part of it."
        )
    return None


CHECKS: tuple[Callable[[Flags, Shape], str | None], ...] = (
    _other_reference,
    _other_engines,
    _broken_ranks,
    _only_asynchronous,
    _short_steps,
    _states_that_stay,
    _idle_ranks,
    _uneven_steps,
)
