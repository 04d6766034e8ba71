"""What a memory table is made of: phases, lines with their formula, and what the lines are counted from."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from restrain_openrlhf.config.gpu_layout import GpuLayout
from restrain_openrlhf.config.host_flags import Flags
from restrain_openrlhf.config.memory.shape import ModelShape, NoEstimateError

GIB = 2**30
# Flags that change the arithmetic in ways that are not worked out here, and the values that do not.
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
    """A stretch of one training step that has a peak of its own, on one kind of GPU."""

    GENERATION = "generation"
    REFERENCE = "reference"
    EXPERIENCE = "experience"
    BACKWARD = "backward"
    STEP = "optimizer step"
    SYNC = "weight sync"


TRAINING = (Phase.BACKWARD, Phase.STEP)


@dataclass(frozen=True)
class MemoryLine:
    """`bytes` on each GPU of the phases. `certain`: held whatever the batch; else an estimate."""

    name: str
    formula: str
    bytes: int
    phases: tuple[Phase, ...] = ()
    certain: bool = False


def product(*factors: int, divisor: int = 1) -> tuple[str, int]:
    """The formula `a × b / d`, and its value rounded up."""
    value = 1
    for factor in factors:
        value *= factor
    text = " × ".join(f"{factor:,}" for factor in factors) + (f" / {divisor:,}" if divisor > 1 else "")
    return text, -(-value // divisor)


@dataclass(frozen=True)
class Held:
    """A model trained with these flags on this layout, as far as memory depends on them."""

    flags: Flags
    shape: ModelShape
    layout: GpuLayout

    @classmethod
    def by(cls, flags: Flags, shape: ModelShape) -> Self:
        """Of OpenRLHF's parsed flags. Raises NoEstimateError naming a flag that is not covered."""
        for name, values in NOT_COVERED.items():
            if flags[name] not in values:
                raise NoEstimateError(f"The memory of {name} = {flags[name]!r} is not worked out. Use {values[0]!r}.")
        if flags["ds.zero_stage"] == 0 and (flags["ds.enable_sleep"] or flags["ds.adam_offload"]):
            raise NoEstimateError("ds.enable_sleep and ds.adam_offload need ds.zero_stage 1, 2 or 3; it is 0.")
        return cls(flags, shape, GpuLayout.of(flags))

    @property
    def stage(self) -> int:
        """ZeRO's."""
        return int(self.flags["ds.zero_stage"])

    @property
    def engines_sleep(self) -> bool:
        """Whether vLLM leaves the policy's GPUs while it trains."""
        return bool(self.flags["vllm.enable_sleep"]) and self.layout.engines_share

    @property
    def has_reference(self) -> bool:
        """With LoRA the base with its adapter off is the reference policy, and no second copy is loaded."""
        return self.layout.reference > 0 and not self.lora_rank

    @property
    def reference_on_the_host(self) -> bool:
        """OpenRLHF's offload has an effect with ZeRO 3 alone (deepspeed_utils.py, get_eval_ds_config)."""
        return self.has_reference and bool(self.flags["ref.offload"]) and self.stage == ZERO_3

    @property
    def gradient_bytes(self) -> int:
        """Of one parameter in the sum over micro-batches."""
        return 4 if self.flags["ds.grad_accum_dtype"] == "fp32" else 2

    @property
    def has_micro_batches(self) -> bool:
        """Whether an optimizer step adds up several; under dynamic batching it is taken for granted."""
        each = int(self.flags["train.micro_batch_size"]) * max(self.layout.policy, 1)
        return bool(self.flags["train.dynamic_batch_enable"]) or int(self.flags["train.batch_size"]) > each

    @property
    def policy_phases(self) -> tuple[Phase, ...]:
        """The phases on the policy's GPUs."""
        own = (Phase.EXPERIENCE, Phase.BACKWARD, Phase.STEP, Phase.SYNC)
        return (Phase.GENERATION, *own) if self.layout.engines_share else own

    @property
    def reference_phases(self) -> tuple[Phase, ...]:
        """The phases on the reference policy's GPUs; on shared ones its forward pass is part of the experience."""
        return self.policy_phases if self.layout.reference_shares else (Phase.REFERENCE,)

    def tokens(self, kind: str) -> tuple[int, ...]:
        """The factors of a micro-batch's tokens: (sequences, longest), or the token budget of dynamic batching.

        `kind` is `train` or `rollout`. A sequence that is longer than the budget makes a micro-batch of its own
        (openrlhf/utils/seqlen_balancing.py).
        """
        longest = int(self.flags["data.max_len"])
        if self.flags["train.dynamic_batch_enable"]:
            budget = self.flags[f"{kind}.max_tokens_per_gpu"] or self.flags["train.max_tokens_per_gpu"]
            return (max(int(budget), longest),)
        return int(self.flags[f"{kind}.micro_batch_size"]), longest

    @property
    def lora_rank(self) -> int:
        """0 without an adapter."""
        return int(self.flags["ds.lora.rank"])

    @property
    def trained(self) -> int:
        """Parameters that have gradients: all, or LoRA's two matrices beside each of its targets.

        PEFT's all-linear is every matrix of a layer and not the output head.
        """
        if not self.lora_rank:
            return self.shape.parameters
        named = self.flags["ds.lora.target_modules"] or "all-linear"
        names = [named] if isinstance(named, str) else list(named)
        chosen = (sizes for name, sizes in self.shape.projections.items() if names == ["all-linear"] or name in names)
        return self.shape.num_hidden_layers * self.lora_rank * sum(inputs + outputs for inputs, outputs in chosen)
