"""Refuses layouts, from the flags alone, that OpenRLHF refuses or hangs on only once a cluster is running.

The reasons are those of cli/train_ppo_ray.py, trainer/ray/launcher.py and DeepSpeed's batch sizes.
"""

from restrain_openrlhf.config.checks.keys import PARTITIONED_WEIGHTS, Check, combinations, refused_if
from restrain_openrlhf.config.gpu_layout import GpuLayout, prompts_drawn, rollouts_of_step
from restrain_openrlhf.config.host_flags import Flags
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.method import Method


def other_reference(flags: Flags, _config: HookConfig, _method: Method) -> str | None:
    """Policy and reference policy are on the same GPUs, but have different numbers of nodes or of GPUs per node."""
    colocated = next((name for name in ("train.colocate_all", "train.colocate_actor_ref") if flags[name]), None)
    same = all(flags[f"actor.{name}"] == flags[f"ref.{name}"] for name in ("num_nodes", "num_gpus_per_node"))
    if not colocated or not flags["algo.kl.init_coef"] or same:
        return None
    nodes, gpus = flags["actor.num_nodes"], flags["actor.num_gpus_per_node"]
    return (
        f"{colocated} puts policy and reference policy on the same GPUs, and the policy has {nodes} nodes of {gpus}, "
        f"the reference policy {flags['ref.num_nodes']} of {flags['ref.num_gpus_per_node']}. Set ref.num_nodes to "
        f"{nodes} and ref.num_gpus_per_node to {gpus}."
    )


def other_engines(flags: Flags, _config: HookConfig, _method: Method) -> str | None:
    """Policy and vLLM are on the same GPUs, but need different numbers of them."""
    layout = GpuLayout.of(flags)
    if not layout.engines_share or layout.policy == layout.vllm:
        return None
    size = layout.gpus_per_engine
    remedy = (
        f"Set vllm.num_engines to {layout.policy // size}"
        if layout.policy % size == 0
        else "Make actor.num_nodes * actor.num_gpus_per_node a multiple of vllm.tensor_parallel_size"
    )
    return (
        f"train.colocate_all puts policy and vLLM on the same GPUs, and the policy has {layout.policy} "
        f"(actor.num_nodes * actor.num_gpus_per_node), vLLM {layout.vllm} (vllm.num_engines * "
        f"vllm.tensor_parallel_size). {remedy}."
    )


def broken_ranks(flags: Flags, _config: HookConfig, _method: Method) -> str | None:
    """The number of GPUs is not a multiple of the GPUs of one rank, or of a ZeRO++ partition."""
    layout = GpuLayout.of(flags)
    for part, gpus in (("actor", layout.policy), ("ref", layout.reference)):
        if gpus % layout.gpus_per_rank:
            return (
                f"{part}.num_nodes * {part}.num_gpus_per_node is {gpus}, no multiple of ds.ring_attn_size * "
                f"ds.tensor_parallel_size = {layout.gpus_per_rank}, the GPUs of one rank. Change one of them."
            )
    if (
        flags["ds.zero_stage"] == PARTITIONED_WEIGHTS
        and flags["ds.zpg"] > 1
        and layout.policy % min(flags["ds.zpg"], layout.policy)
    ):
        return f"ds.zpg is {flags['ds.zpg']} and does not divide the policy's {layout.policy} GPUs. Change one of them."
    return None


def idle_ranks(flags: Flags, _config: HookConfig, _method: Method) -> str | None:
    """Some ranks would have no micro-batch of rollouts, or ranks would have different numbers of them.

    The host hands micro-batches of rollouts to ranks, and a rank without any ends the run.
    """
    layout = GpuLayout.of(flags)
    rollouts, size = rollouts_of_step(flags), flags["rollout.micro_batch_size"]
    have = f"rollout.batch_size * rollout.n_samples_per_prompt is {rollouts}, "
    if rollouts // size < layout.ranks:
        return (
            f"{have}{rollouts // size} micro-batches of rollout.micro_batch_size {size} for the policy's "
            f"{layout.ranks} ranks. Lower rollout.micro_batch_size to {rollouts // layout.ranks} or less, or raise "
            "rollout.batch_size."
        )
    dynamic = flags["train.dynamic_batch_enable"]
    # With dynamic batches there may be as few as the policy has ranks.
    if layout.reference_ranks > (layout.ranks if dynamic else -(-rollouts // size)):
        return (
            f"The reference policy has {layout.reference_ranks} ranks, more than there may be micro-batches of "
            "rollouts. Lower ref.num_nodes or ref.num_gpus_per_node."
        )
    if not dynamic and layout.ranks > 1 and rollouts % (size * layout.ranks):
        return (
            f"{have}no multiple of rollout.micro_batch_size {size} times the policy's {layout.ranks} ranks: ranks "
            "would have different numbers of rollouts and wait for each other forever. Change one of them."
        )
    return None


def uneven_steps(flags: Flags, _config: HookConfig, _method: Method) -> str | None:
    """A batch does not divide evenly into ranks and micro-batches, or a step's rollouts into batches."""
    layout = GpuLayout.of(flags)
    rollouts, batch, dynamic = rollouts_of_step(flags), flags["train.batch_size"], flags["train.dynamic_batch_enable"]
    # DeepSpeed requires a batch to consist of whole micro-batches, equally many on every rank.
    piece = layout.ranks if dynamic else layout.ranks * flags["train.micro_batch_size"]
    if batch % piece:
        times = "" if dynamic else f" times train.micro_batch_size {flags['train.micro_batch_size']}"
        return (
            f"train.batch_size is {batch}, no multiple of the policy's {layout.ranks} ranks{times}. Change one of them."
        )
    if rollouts % batch:
        return (
            f"A step has {rollouts} rollouts (rollout.batch_size * rollout.n_samples_per_prompt), no multiple of "
            f"train.batch_size {batch}: what is left over would be trained on in another step, or not at all. Set "
            f"train.batch_size to {rollouts}, or to a part of it."
        )
    return None


LAYOUT: tuple[Check, ...] = (
    other_reference,
    other_engines,
    broken_ranks,
    # A step takes the prompts that were drawn at once (trainer/ppo_utils/samples_generator.py, generate_samples).
    refused_if(
        lambda flags, *_: prompts_drawn(flags) != flags["rollout.batch_size"],
        "rollout.vllm_generate_batch_size is {rollout.vllm_generate_batch_size} and rollout.batch_size is "
        "{rollout.batch_size}: of fewer prompts OpenRLHF would take steps of that size, which its schedule does not "
        "count; of more, rollouts would wait for a later step in no checkpoint, and a resumed run would never train on "
        "their prompts. Leave rollout.vllm_generate_batch_size out.",
    ),
    *combinations("layout"),
    idle_ranks,
    uneven_steps,
)
