"""The parts of a memory estimate: phases, lines with their formula, and the facts that lines are computed from."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from restrain_openrlhf.config.gpu_layout import GpuLayout
from restrain_openrlhf.config.host_flags import Flags
from restrain_openrlhf.config.memory.shape import ModelShape, NoEstimateError

GIB = 2**30
# Flags that change the arithmetic in ways that are not covered here, and the values that are covered.
NOT_COVERED: Mapping[str, tuple[object, ...]] = {
    "ds.tensor_parallel_size": (1,),
    "ds.ring_attn_size": (1,),
    "ds.load_in_4bit": (False,),
    "ds.zpg": (1,),
    "ds.grad_accum_dtype": (None, "bf16", "fp32"),
    "train.enable_ema": (False,),
    "actor.optim": ("adam",),
}
ZERO_3 = 3


class Phase(StrEnum):
    """A part of a training step that has its own peak of memory, on one kind of GPU."""

    GENERATION = "generation"
    REFERENCE = "reference"
    EXPERIENCE = "experience"
    BACKWARD = "backward"
    STEP = "optimizer step"
    SYNC = "weight sync"


TRAINING = (Phase.BACKWARD, Phase.STEP)


@dataclass(frozen=True)
class MemoryLine:
    """`bytes` that each GPU holds in the phases. `certain` bytes do not depend on the batch; others are estimates."""

    name: str
    formula: str
    bytes: int
    phases: tuple[Phase, ...] = ()
    certain: bool = False


def product(*factors: int, divisor: int = 1) -> tuple[str, int]:
    """The formula `a × b / d` as text, and its value rounded up."""
    value = 1
    for factor in factors:
        value *= factor
    text = " × ".join(f"{factor:,}" for factor in factors) + (f" / {divisor:,}" if divisor > 1 else "")
    return text, -(-value // divisor)


@dataclass(frozen=True)
class Held:
    """The facts about model, flags and layout on which the memory depends."""

    flags: Flags
    shape: ModelShape
    layout: GpuLayout

    @classmethod
    def by(cls, flags: Flags, shape: ModelShape) -> Self:
        """From OpenRLHF's parsed flags. Raises NoEstimateError naming a flag that is not covered."""
        for name, values in NOT_COVERED.items():
            if flags[name] not in values:
                raise NoEstimateError(f"The memory of {name} = {flags[name]!r} is not worked out. Use {values[0]!r}.")
        if flags["ds.zero_stage"] == 0 and (flags["ds.enable_sleep"] or flags["ds.adam_offload"]):
            raise NoEstimateError("ds.enable_sleep and ds.adam_offload need ds.zero_stage 1, 2 or 3; it is 0.")
        return cls(flags, shape, GpuLayout.of(flags))

    @property
    def stage(self) -> int:
        """The ZeRO stage."""
        return int(self.flags["ds.zero_stage"])

    @property
    def engines_sleep(self) -> bool:
        """Whether vLLM frees the policy's GPUs while the policy trains."""
        return bool(self.flags["vllm.enable_sleep"]) and self.layout.engines_share

    @property
    def has_reference(self) -> bool:
        """Whether a reference policy is loaded. With LoRA it is the policy with its adapter off, and no second copy."""
        return self.layout.reference > 0 and not self.lora_rank

    @property
    def reference_on_the_host(self) -> bool:
        """Whether the reference is offloaded, which only works with ZeRO 3 (deepspeed_utils.py, get_eval_ds_config)."""
        return self.has_reference and bool(self.flags["ref.offload"]) and self.stage == ZERO_3

    @property
    def gradient_bytes(self) -> int:
        """Bytes of one parameter's gradient in the sum over micro-batches."""
        return 4 if self.flags["ds.grad_accum_dtype"] == "fp32" else 2

    @property
    def has_micro_batches(self) -> bool:
        """Whether an optimizer step may have several micro-batches, as it always may under dynamic batching."""
        each = int(self.flags["train.micro_batch_size"]) * max(self.layout.policy, 1)
        return bool(self.flags["train.dynamic_batch_enable"]) or int(self.flags["train.batch_size"]) > each

    @property
    def policy_phases(self) -> tuple[Phase, ...]:
        """The phases on the policy's GPUs."""
        own = (Phase.EXPERIENCE, Phase.BACKWARD, Phase.STEP, Phase.SYNC)
        return (Phase.GENERATION, *own) if self.layout.engines_share else own

    @property
    def reference_phases(self) -> tuple[Phase, ...]:
        """The phases on the reference policy's GPUs. On shared GPUs its forward pass is part of the experience."""
        return self.policy_phases if self.layout.reference_shares else (Phase.REFERENCE,)

    def tokens(self, kind: str) -> tuple[int, ...]:
        """The factors of a micro-batch's tokens: (sequences, longest), or (token budget,) with dynamic batching.

        `kind` is `train` or `rollout`. A sequence that is longer than the budget is a micro-batch by itself
        (openrlhf/utils/seqlen_balancing.py).
        """
        longest = int(self.flags["data.max_len"])
        if self.flags["train.dynamic_batch_enable"]:
            budget = self.flags[f"{kind}.max_tokens_per_gpu"] or self.flags["train.max_tokens_per_gpu"]
            return (max(int(budget), longest),)
        return int(self.flags[f"{kind}.micro_batch_size"]), longest

    @property
    def lora_rank(self) -> int:
        """The rank of the LoRA adapter; 0 without one."""
        return int(self.flags["ds.lora.rank"])

    @property
    def trained(self) -> int:
        """The number of parameters with gradients: all, or the two LoRA matrices of each target.

        PEFT's all-linear means all matrices of the layers, without the output head.
        """
        if not self.lora_rank:
            return self.shape.parameters
        named = self.flags["ds.lora.target_modules"] or "all-linear"
        names = [named] if isinstance(named, str) else list(named)
        chosen = (sizes for name, sizes in self.shape.projections.items() if names == ["all-linear"] or name in names)
        return self.shape.num_hidden_layers * self.lora_rank * sum(inputs + outputs for inputs, outputs in chosen)
