"""The memory of a run, line by line: on a GPU in each phase, on the host, on disk."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Self

from restrain_openrlhf.config.gpu_layout import GpuLayout, prompts_drawn
from restrain_openrlhf.config.host_flags import Flags
from restrain_openrlhf.config.memory.lines import (
    BACKWARD,
    GIB,
    TRAINING,
    CacheRoom,
    MemoryEstimate,
    MemoryLine,
    Phase,
)
from restrain_openrlhf.config.memory.shape import ModelShape, NoEstimateError

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
BF16, FP32 = 2, 4
# fp32 master weights and Adam's two moments.
ADAM_BYTES = 12
# Adam on the host: its 12 bytes, the fp32 gradient, and a bf16 buffer for weights; from ZeRO 2 on also a buffer for
# accumulating (deepspeed/runtime/zero/stage_1_and_2.py).
OFFLOADED_ADAM_BYTES = ADAM_BYTES + 4 + 2
OFFLOADED_GRADIENT_BYTES = 2
# The gradient's copy in one flat bf16 tensor and in fp32 (deepspeed/runtime/zero/stage_1_and_2.py, step).
STEP_COPIES_BYTES = 2 + 4
# DeepSpeed's defaults, in elements: OpenRLHF leaves them at "auto", which DeepSpeed drops.
REDUCE_BUCKET = 500_000_000
MAX_LIVE_PARAMETERS = 1_000_000_000
ZERO_2, ZERO_3 = 2, 3
# Bytes per logit. Actor.forward makes an fp32 copy of the bf16 logits, then drops these (openrlhf/models/actor.py).
FORWARD_BYTES = 2 + 4
# In the backward pass (hook/fixes/training_step.py): the fp32 logits, overwritten by their gradient, and its bf16 copy.
BACKWARD_BYTES = 4 + 2
# With a temperature other than 1 there is a second fp32 tensor, because dividing copies the gradient.
BACKWARD_BYTES_TEMPERED = 4 + 4 + 2
# With the entropy in the loss the logits stay, and each of the two terms has an fp32 gradient, at any temperature.
BACKWARD_BYTES_WITH_ENTROPY = 4 + 4 + 4
# Assumed, not computed: what a process has on a GPU before its first tensor, and vLLM's graphs and workspace asleep.
CONTEXT = 6 * GIB // 10
SLEEPING_ENGINE = GIB


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
        own = (Phase.EXPERIENCE, *TRAINING, Phase.SYNC)
        return (Phase.GENERATION, *own) if self.layout.engines_share else own

    @property
    def reference_phases(self) -> tuple[Phase, ...]:
        """The phases on the reference policy's GPUs. On shared GPUs its forward pass is part of the experience."""
        return self.policy_phases if self.layout.reference_shares else (Phase.REFERENCE,)

    @property
    def apart(self) -> tuple[Phase, ...]:
        """The phase of the reference policy's forward pass, if it has its own GPUs."""
        return (Phase.REFERENCE,) if self.has_reference and not self.layout.reference_shares else ()

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


def estimate(flags: Flags, shape: ModelShape, gpu_bytes: int | None = None) -> MemoryEstimate:
    """The memory of a run with these flags (dotted names, parsed).

    Raises NoEstimateError for flags that the arithmetic does not cover.
    """
    held = Held.by(flags, shape)
    lines = (
        *_policy(held),
        *_reference(held),
        *_batch(held),
        *_engine(held, gpu_bytes),
        MemoryLine("largest tensor's copy", *product(shape.embedding, BF16), (Phase.SYNC,)),
        *_contexts(held),
    )
    return MemoryEstimate(lines, tuple(_host(held)), tuple(_disk(held)), gpu_bytes, _cache(held, gpu_bytes))


def _policy(held: Held) -> Iterator[MemoryLine]:
    """Parameters, gradients and Adam's states, divided among GPUs by DeepSpeed's ZeRO stage."""
    policy, lora = held.layout.policy, held.lora_rank
    parameters = held.shape.parameters + (held.trained if lora else 0)
    formula = product(parameters, BF16, divisor=policy if held.stage == ZERO_3 else 1)
    yield MemoryLine(f"policy, {'base and adapters' if lora else 'bf16'}", *formula, held.policy_phases, True)
    if held.stage == ZERO_3 and policy > 1:
        formula = product(min(parameters, MAX_LIVE_PARAMETERS), BF16)
        yield MemoryLine("policy, layers gathered by ZeRO 3", *formula, (Phase.EXPERIENCE, *BACKWARD))
    yield from _gradients(held)
    if held.stage:
        buckets = 2 if held.flags["ds.overlap_comm"] else 1
        yield MemoryLine("gradients' reduce bucket", *product(buckets, REDUCE_BUCKET, BF16), (Phase.LAYERS,))
    yield from _optimizer(held)


def _gradients(held: Held) -> Iterator[MemoryLine]:
    """The sum of gradients over micro-batches and, under ZeRO 2, also the gradients of one micro-batch.

    The source is runtime/zero/stage_1_and_2.py, independent_gradient_partition_epilogue. With Adam on the host,
    gradients are there as well from ZeRO 2 on.
    """
    if held.flags["ds.adam_offload"] and held.stage >= ZERO_2:
        return
    divisor = held.layout.policy if held.stage >= ZERO_2 else 1
    formula = product(held.trained, held.gradient_bytes, divisor=divisor)
    yield MemoryLine(f"gradients, {'fp32' if held.gradient_bytes == FP32 else 'bf16'}", *formula, TRAINING, True)
    if held.stage == ZERO_2 and held.has_micro_batches:
        formula = product(held.trained, BF16, divisor=divisor)
        yield MemoryLine("gradients of one micro-batch, bf16", *formula, (Phase.LAYERS,), True)


def _optimizer(held: Held) -> Iterator[MemoryLine]:
    if held.flags["ds.adam_offload"]:
        widest = max(sum(held.shape.projections.values(), ()))
        largest = held.lora_rank * widest if held.lora_rank else held.shape.embedding
        yield MemoryLine("Adam on the host: its buffer here", *product(largest, BF16), held.policy_phases)
        return
    shards = held.layout.policy if held.stage else 1
    phases = TRAINING if held.flags["ds.enable_sleep"] else held.policy_phases
    yield MemoryLine("fp32 master weights and Adam", *product(held.trained, ADAM_BYTES, divisor=shards), phases, True)
    # A sum in fp32 only needs to be flattened for the optimizer.
    copies = FP32 if held.gradient_bytes == FP32 else STEP_COPIES_BYTES
    formula = product(held.trained, copies, divisor=shards)
    yield MemoryLine("gradients' flat and fp32 copies", *formula, (Phase.STEP,))


def _reference(held: Held) -> Iterator[MemoryLine]:
    if held.has_reference and not held.reference_on_the_host:
        formula = product(held.shape.parameters, BF16, divisor=held.layout.reference if held.stage == ZERO_3 else 1)
        yield MemoryLine("reference policy, bf16", *formula, held.reference_phases, True)


def _batch(held: Held) -> Iterator[MemoryLine]:
    """Logits, with all copies that OpenRLHF's log-probabilities make, and activations of a micro-batch.

    In a pass without gradients a layer's tensors are freed before there are logits, which are larger.
    """
    shape, train, layers = held.shape, held.tokens("train"), held.shape.num_hidden_layers
    formula = product(*held.tokens("rollout"), shape.vocab_size, FORWARD_BYTES)
    yield MemoryLine("logits, forward (bf16, fp32)", *formula, (Phase.EXPERIENCE, *held.apart))
    formula = product(*train, shape.vocab_size, bytes_of_a_logit(held.flags))
    yield MemoryLine("logits, backward (fp32, gradient, bf16)", *formula, (Phase.HEAD,))
    # The host's step holds them until it ends.
    yield MemoryLine("logits, fp32", *product(*train, shape.vocab_size, FP32), (Phase.LAYERS,))
    kept, width = _kept_by_a_layer(held)
    if held.flags["actor.gradient_checkpointing_enable"]:
        formula = product(*train, layers, shape.hidden_size, BF16)
        yield MemoryLine("layers' inputs (gradient checkpointing)", *formula, BACKWARD)
    else:
        yield MemoryLine(f"all layers ({kept})", *product(*train, layers, width), (Phase.HEAD,))
    # The gradients of both factors of the MLP's product are made while the factors are still there.
    formula = product(*train, width + 2 * BF16 * shape.intermediate_size)
    yield MemoryLine(f"one layer ({kept} + 4 × inner)", *formula, (Phase.LAYERS,))


def _kept_by_a_layer(held: Held) -> tuple[str, int]:
    """The formula, and the bytes that one layer keeps for each token until its backward pass.

    Norms keep fp32 and, where their weights are trained, bf16; attention and the MLP keep bf16 (tests/hook/
    test_activations.py measures each factor).
    """
    shape, trained = held.shape, 0 if held.lora_rank else BF16
    norms, heads = 2 * (FP32 + BF16 + trained), 4 + (FP32 + trained if shape.has_head_norms else 0)
    width = norms * shape.hidden_size + heads * (shape.q_size + shape.kv_size) + 8 * shape.intermediate_size
    return f"{norms} × hidden + {heads} × (q + kv) + 8 × inner", width


def bytes_of_a_logit(flags: Flags) -> int:
    """Bytes per logit in the backward pass. The entropy is in the loss if its coefficient is not 0."""
    if flags["actor.entropy_coef"]:
        return BACKWARD_BYTES_WITH_ENTROPY
    return BACKWARD_BYTES if flags["rollout.temperature"] == 1 else BACKWARD_BYTES_TEMPERED


def _engine(held: Held, gpu_bytes: int | None) -> Iterator[MemoryLine]:
    """vLLM's share of the GPU by `gpu_memory_utilization`, or its minimum if `gpu_bytes` is None; and vLLM asleep."""
    layout, shape = held.layout, held.shape
    if not layout.engines:
        return
    always = layout.engines_share and not held.engines_sleep
    awake = held.policy_phases if always else (Phase.GENERATION,)
    loaded = (*awake, Phase.SYNC) if layout.engines_share and not always else awake
    text, weights = product(shape.parameters, BF16, divisor=layout.gpus_per_engine)
    yield MemoryLine("vLLM, weights", text, weights, loaded, True)
    text, least = product(int(held.flags["data.max_len"]), _token(held))
    yield MemoryLine("vLLM, keys and values of one longest sequence", text, least, awake, True)
    if gpu_bytes is not None:
        utilization = float(held.flags["vllm.gpu_memory_utilization"])
        text = f"{utilization:g} × {gpu_bytes:,} − {weights:,} − {least:,}"
        rest = max(int(utilization * gpu_bytes) - weights - least, 0)
        yield MemoryLine("vLLM, the rest of its share", text, rest, awake, True)
    if held.engines_sleep:
        phases = tuple(phase for phase in held.policy_phases if phase is not Phase.GENERATION)
        yield MemoryLine("vLLM asleep (assumed)", "1 GiB", SLEEPING_ENGINE, phases)


def _token(held: Held) -> int:
    """Bytes of one token's keys and values on one of an engine's GPUs. A head is never split."""
    heads = -(-held.shape.num_key_value_heads // held.layout.gpus_per_engine)
    return 2 * held.shape.num_hidden_layers * heads * held.shape.head_dim * BF16


def _cache(held: Held, gpu_bytes: int | None) -> CacheRoom | None:
    if gpu_bytes is None or not held.layout.engines:
        return None
    weights = held.shape.parameters * BF16 // held.layout.gpus_per_engine
    left = int(float(held.flags["vllm.gpu_memory_utilization"]) * gpu_bytes) - weights
    prompts = -(-prompts_drawn(held.flags) // held.layout.engines)
    return CacheRoom(max(left, 0) // _token(held), prompts * int(held.flags["rollout.n_samples_per_prompt"]))


def _contexts(held: Held) -> Iterator[MemoryLine]:
    """The memory of CUDA contexts, one for each process on a GPU; that of vLLM is part of vLLM's share."""
    shares = held.layout.reference_shares
    own = 1 + (held.has_reference and shares) + held.layout.engines_share
    text = f"{own} × 0.6 GiB" if own > 1 else "0.6 GiB"
    yield MemoryLine("CUDA contexts (assumed)", text, own * CONTEXT, held.policy_phases)
    if held.has_reference and not shares:
        yield MemoryLine("CUDA context (assumed), reference's GPUs", "0.6 GiB", CONTEXT, (Phase.REFERENCE,))


def _host(held: Held) -> Iterator[MemoryLine]:
    """Main memory per node, besides what processes need to load the model and to hold a batch of rollouts."""
    nodes, parameters = held.layout.nodes, held.shape.parameters
    if held.flags["ds.adam_offload"]:
        each = OFFLOADED_ADAM_BYTES + (OFFLOADED_GRADIENT_BYTES if held.stage >= ZERO_2 else 0)
        yield MemoryLine("Adam on the host", *product(held.trained, each, divisor=nodes))
    elif held.flags["ds.enable_sleep"]:
        yield MemoryLine("optimizer asleep", *product(held.trained, ADAM_BYTES, divisor=nodes))
    if held.engines_sleep:
        yield MemoryLine("vLLM's weights asleep", *product(held.layout.engines, parameters, BF16, divisor=nodes))
    if held.reference_on_the_host:
        yield MemoryLine("reference policy on the host", *product(parameters, BF16, divisor=nodes))


def _disk(held: Held) -> Iterator[MemoryLine]:
    """The run's folder at its largest: checkpoints (with LoRA only of the adapter), and the final model.

    None is deleted before the next one is whole. A LoRA run's model is whole, beside the adapter.
    """
    text, size = product(held.trained, BF16 + ADAM_BYTES)
    yield MemoryLine("one checkpoint", text, size)
    yield MemoryLine("checkpoints (ckpt.max_num + 1)", *product(int(held.flags["ckpt.max_num"]) + 1, size))
    model = held.shape.parameters + (held.trained if held.lora_rank else 0)
    yield MemoryLine(f"trained model{' and adapter' if held.lora_rank else ''}, bf16", *product(model, BF16))


def product(*factors: int, divisor: int = 1) -> tuple[str, int]:
    """The formula `a × b / d` as text, and its value rounded up."""
    text = " × ".join(f"{factor:,}" for factor in factors) + (f" / {divisor:,}" if divisor > 1 else "")
    return text, -(-prod(factors) // divisor)
