"""What decides memory among OpenRLHF's flags: who shares a GPU, what is sharded, offloaded or asleep, batches."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.memory.lines import Phase
from restrain_openrlhf.memory.shape import ModelShape

# Flags that change the arithmetic in ways that are not worked out here, and the values that do not.
NOT_COVERED: Mapping[str, tuple[object, ...]] = {
    "ds.tensor_parallel_size": (1,),
    "ds.ring_attn_size": (1,),
    "ds.load_in_4bit": (False,),
    "ds.zpg": (1,),
    "ds.grad_accum_dtype": (None, "bf16"),
    "train.enable_ema": (False,),
    "actor.optim": ("adam",),
}


class NotCoveredError(ConfigError):
    """The arithmetic does not cover what the flags ask for."""


@dataclass(frozen=True)
class Layout:
    """OpenRLHF's flags, as far as memory depends on them. Lengths in tokens, batches in sequences or tokens a GPU."""

    gpus: int
    nodes: int
    reference_gpus: int
    zero_stage: int
    adam_offload: bool
    policy_sleeps: bool
    overlap_comm: bool
    checkpointing: bool
    temperature: float
    max_len: int
    train_tokens: tuple[int, ...]
    experience_tokens: tuple[int, ...]
    has_reference: bool
    reference_offload: bool
    reference_shares: bool
    engines: int
    tensor_parallel: int
    utilization: float
    engine_sleeps: bool
    engine_shares: bool
    lora_rank: int
    lora_targets: tuple[str, ...] | None
    checkpoints: int

    @property
    def shards(self) -> int:
        """Over how many GPUs ZeRO 1 to 3 divides the optimizer's states."""
        return self.gpus if self.zero_stage else 1

    @property
    def parameter_shards(self) -> int:
        """Over how many GPUs the policy's parameters are divided."""
        return self.gpus if self.zero_stage == 3 else 1  # noqa: PLR2004 - ZeRO 3 divides parameters

    @property
    def policy_phases(self) -> tuple[Phase, ...]:
        """The phases on the policy's GPUs."""
        own = (Phase.EXPERIENCE, Phase.BACKWARD, Phase.STEP, Phase.SYNC)
        return (Phase.GENERATION, *own) if self.engine_shares else own

    @property
    def reference_phases(self) -> tuple[Phase, ...]:
        """The phases on the reference policy's GPUs; on shared ones its forward pass is part of the experience."""
        return self.policy_phases if self.reference_shares else (Phase.REFERENCE,)

    def trainable(self, shape: ModelShape) -> int:
        """Parameters that have gradients: all, or LoRA's two matrices beside each of its targets."""
        if not self.lora_rank:
            return shape.parameters
        chosen = (sizes for name, sizes in shape.projections.items() if self._is_target(name))
        return shape.num_hidden_layers * self.lora_rank * sum(inputs + outputs for inputs, outputs in chosen)

    def _is_target(self, name: str) -> bool:
        return self.lora_targets is None or name in self.lora_targets


def read_layout(flags: Mapping[str, Any]) -> Layout:
    """The layout that parsed flags (dotted names) ask for. Raises NotCoveredError naming a flag that is not covered."""
    for name, values in NOT_COVERED.items():
        if flags[name] not in values:
            raise NotCoveredError(f"The memory of {name} = {flags[name]!r} is not worked out. Use {values[0]!r}.")
    synchronous = not flags["train.async_enable"]
    shares = bool(flags["train.colocate_all"]) and synchronous
    sleeps, stage = bool(flags["ds.enable_sleep"]), int(flags["ds.zero_stage"])
    if stage == 0 and (sleeps or flags["ds.adam_offload"]):
        raise NotCoveredError("ds.enable_sleep and ds.adam_offload need ds.zero_stage 1, 2 or 3; it is 0.")
    return Layout(
        gpus=int(flags["actor.num_nodes"]) * int(flags["actor.num_gpus_per_node"]),
        nodes=int(flags["actor.num_nodes"]),
        reference_gpus=int(flags["ref.num_nodes"]) * int(flags["ref.num_gpus_per_node"]),
        zero_stage=stage,
        adam_offload=bool(flags["ds.adam_offload"]),
        policy_sleeps=sleeps,
        overlap_comm=bool(flags["ds.overlap_comm"]),
        checkpointing=bool(flags["actor.gradient_checkpointing_enable"]),
        temperature=float(flags["rollout.temperature"]),
        max_len=int(flags["data.max_len"]),
        train_tokens=_tokens(flags, "train"),
        experience_tokens=_tokens(flags, "rollout"),
        # With LoRA the base with its adapters off is the reference policy, and no second copy is loaded.
        has_reference=bool(flags["algo.kl.init_coef"]) and not flags["ds.lora.rank"],
        reference_offload=bool(flags["ref.offload"]),
        reference_shares=bool(flags["train.colocate_all"] or flags["train.colocate_actor_ref"]),
        engines=int(flags["vllm.num_engines"] or 0),
        tensor_parallel=int(flags["vllm.tensor_parallel_size"]),
        utilization=float(flags["vllm.gpu_memory_utilization"]),
        engine_sleeps=bool(flags["vllm.enable_sleep"]) and shares,
        engine_shares=shares,
        lora_rank=int(flags["ds.lora.rank"]),
        lora_targets=_targets(flags["ds.lora.target_modules"]),
        checkpoints=int(flags["ckpt.max_num"]),
    )


def _tokens(flags: Mapping[str, Any], kind: str) -> tuple[int, ...]:
    """The factors of a micro-batch's tokens: (sequences, longest), or the token budget of dynamic batching.

    A sequence that is longer than the budget makes a micro-batch of its own (openrlhf/utils/seqlen_balancing.py).
    """
    longest = int(flags["data.max_len"])
    if flags["train.dynamic_batch_enable"]:
        budget = flags[f"{kind}.max_tokens_per_gpu"] or flags["train.max_tokens_per_gpu"]
        return (max(int(budget), longest),)
    return int(flags[f"{kind}.micro_batch_size"]), longest


def _targets(value: object) -> tuple[str, ...] | None:
    """None for PEFT's all-linear, which is every matrix of a layer and not the output head."""
    names = [value] if isinstance(value, str) else list(value or ())  # type: ignore[call-overload]
    return None if names == ["all-linear"] or not names else tuple(map(str, names))
