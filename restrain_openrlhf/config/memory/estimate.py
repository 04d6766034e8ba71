"""The memory of a run, line by line: on a GPU in each phase, on the host, on disk; and what certainly cannot fit."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from restrain_openrlhf.config.gpu_layout import prompts_drawn
from restrain_openrlhf.config.host_flags import Flags
from restrain_openrlhf.config.memory.lines import (
    GIB,
    TRAINING,
    ZERO_3,
    Held,
    MemoryLine,
    Phase,
    product,
)
from restrain_openrlhf.config.memory.shape import ModelShape, NoEstimateError, shape_of

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
ZERO_2 = 2
# Bytes per logit. Actor.forward makes an fp32 copy of the bf16 logits, then drops these (openrlhf/models/actor.py).
FORWARD_BYTES = 2 + 4
# In the backward pass (hook/fixes/training_step.py): the fp32 logits, overwritten by their gradient, and its bf16 copy.
BACKWARD_BYTES = 4 + 2
# With a temperature other than 1 there is a second fp32 tensor, because dividing copies the gradient.
BACKWARD_BYTES_TEMPERED = 4 + 4 + 2
# With the entropy in the loss the logits stay, and each of the two terms has an fp32 gradient, at any temperature.
BACKWARD_BYTES_WITH_ENTROPY = 4 + 4 + 4
# The mask of a sliding window: booleans (transformers/masking_utils.py), and torch's bf16 copy during attention.
MASK_BYTES = 1 + 2
# Assumed, not computed: what a process has on a GPU before its first tensor, and vLLM's graphs and workspace asleep.
CONTEXT = 6 * GIB // 10
SLEEPING_ENGINE = GIB


@dataclass(frozen=True)
class CacheRoom:
    """The tokens whose keys and values fit into an engine's cache, and the rollouts that it is given at once."""

    tokens: int
    rollouts: int


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes per GPU by phase (`lines`), per node (`host`), and in the run's folder (`disk`).

    `gpu_bytes` is the GPU's memory. It is None if that is unknown, and then `cache` is None, too.
    """

    lines: tuple[MemoryLine, ...]
    host: tuple[MemoryLine, ...]
    disk: tuple[MemoryLine, ...]
    gpu_bytes: int | None = None
    cache: CacheRoom | None = None
    peak_bytes: Mapping[Phase, int] = field(init=False)
    certain_bytes: Mapping[Phase, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "peak_bytes", _sums(self.lines))
        object.__setattr__(self, "certain_bytes", _sums(line for line in self.lines if line.certain))

    @property
    def peak(self) -> tuple[Phase, int]:
        """The phase that needs the most memory, and its bytes."""
        return max(self.peak_bytes.items(), key=lambda entry: entry[1])

    @property
    def certain(self) -> tuple[Phase, int]:
        """The phase with the most memory that is certain, and these bytes."""
        return max(self.certain_bytes.items(), key=lambda entry: entry[1])


def estimate(flags: Flags, shape: ModelShape, gpu_bytes: int | None = None) -> MemoryEstimate:
    """The memory of a run with these flags (dotted names, parsed).

    Raises NoEstimateError for flags that the arithmetic does not cover.
    """
    held = Held.by(flags, shape)
    lines = (
        *_policy(held),
        *_reference(held),
        *_batch(held),
        *_masks(held),
        *_engine(held, gpu_bytes),
        MemoryLine("largest tensor's copy", *product(shape.embedding, BF16), (Phase.SYNC,)),
        *_contexts(held),
    )
    return MemoryEstimate(lines, tuple(_host(held)), tuple(_disk(held)), gpu_bytes, _cache(held, gpu_bytes))


def _sums(lines: Iterable[MemoryLine]) -> dict[Phase, int]:
    lines = tuple(lines)
    phases = (phase for phase in Phase if any(phase in line.phases for line in lines))
    return {phase: sum(line.bytes for line in lines if phase in line.phases) for phase in phases}


def _policy(held: Held) -> Iterator[MemoryLine]:
    """Parameters, gradients and Adam's states, divided among GPUs by DeepSpeed's ZeRO stage."""
    policy, lora = held.layout.policy, held.lora_rank
    parameters = held.shape.parameters + (held.trained if lora else 0)
    formula = product(parameters, BF16, divisor=policy if held.stage == ZERO_3 else 1)
    yield MemoryLine(f"policy, {'base and adapters' if lora else 'bf16'}", *formula, held.policy_phases, True)
    if held.stage == ZERO_3 and policy > 1:
        formula = product(min(parameters, MAX_LIVE_PARAMETERS), BF16)
        yield MemoryLine("policy, layers gathered by ZeRO 3", *formula, (Phase.EXPERIENCE, Phase.BACKWARD))
    yield from _gradients(held)
    if held.stage:
        buckets = 2 if held.flags["ds.overlap_comm"] else 1
        yield MemoryLine("gradients' reduce bucket", *product(buckets, REDUCE_BUCKET, BF16), (Phase.BACKWARD,))
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
        yield MemoryLine("gradients of one micro-batch, bf16", *formula, (Phase.BACKWARD,), True)


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
    """The frozen model."""
    if held.has_reference and not held.reference_on_the_host:
        formula = product(held.shape.parameters, BF16, divisor=held.layout.reference if held.stage == ZERO_3 else 1)
        yield MemoryLine("reference policy, bf16", *formula, held.reference_phases, True)


def _batch(held: Held) -> Iterator[MemoryLine]:
    """Logits, with all copies that OpenRLHF's log-probabilities make, and activations of a micro-batch."""
    shape, experience, train = held.shape, held.tokens("rollout"), held.tokens("train")
    forward = (Phase.EXPERIENCE, *_apart(held))
    yield MemoryLine("logits, forward (bf16, fp32)", *product(*experience, shape.vocab_size, FORWARD_BYTES), forward)
    width = 6 * shape.intermediate_size + 4 * shape.hidden_size
    yield MemoryLine("one layer, forward (6 × inner + 4 × hidden)", *product(*experience, width), forward)
    formula = product(*train, shape.vocab_size, bytes_of_a_logit(held.flags))
    yield MemoryLine("logits, backward (fp32, gradient, bf16)", *formula, (Phase.BACKWARD,))
    # Bytes that one layer keeps per token for its backward pass: norms in fp32, attention and MLP in bf16.
    kept, layers = "16 × hidden + 6 × (q + kv) + 8 × inner", shape.num_hidden_layers
    width = 16 * shape.hidden_size + 6 * (shape.q_size + shape.kv_size) + 8 * shape.intermediate_size
    if held.flags["actor.gradient_checkpointing_enable"]:
        formula = product(*train, layers, shape.hidden_size, BF16)
        yield MemoryLine("layers' inputs (gradient checkpointing)", *formula, (Phase.BACKWARD,))
        yield MemoryLine(f"one layer, backward ({kept})", *product(*train, width), (Phase.BACKWARD,))
    else:
        yield MemoryLine(f"all layers ({kept})", *product(*train, layers, width), (Phase.BACKWARD,))


def bytes_of_a_logit(flags: Flags) -> int:
    """Bytes per logit in the backward pass. The entropy is in the loss if its coefficient is not 0."""
    if flags["actor.entropy_coef"]:
        return BACKWARD_BYTES_WITH_ENTROPY
    return BACKWARD_BYTES if flags["rollout.temperature"] == 1 else BACKWARD_BYTES_TEMPERED


def _masks(held: Held) -> Iterator[MemoryLine]:
    """The attention masks of a sliding window, where a padded sequence can be as long as the window.

    Without a window, batches that are padded on the right need no mask (hook/fixes/training_step.py), nor do packed
    batches.
    """
    window, longest = held.shape.sliding_window, int(held.flags["data.max_len"])
    packed = held.flags["ds.packing_samples"] or held.flags["train.dynamic_batch_enable"]
    if window is None or longest < window or packed:
        return
    phases = {"rollout": (Phase.EXPERIENCE, *_apart(held)), "train": (Phase.BACKWARD,)}
    for (kind, of), name in zip(phases.items(), ("forward", "backward"), strict=True):
        yield MemoryLine(f"sliding window's mask, {name}", *product(*held.tokens(kind), longest, MASK_BYTES), of)


def _apart(held: Held) -> tuple[Phase, ...]:
    """The phase of the reference policy's forward pass, if it has its own GPUs."""
    return (Phase.REFERENCE,) if held.has_reference and not held.layout.reference_shares else ()


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
    """The run's folder at its largest: checkpoints (with LoRA only of the adapter), and the final model or adapter."""
    text, size = product(held.trained, BF16 + ADAM_BYTES)
    yield MemoryLine("one checkpoint", text, size)
    yield MemoryLine("checkpoints kept (ckpt.max_num)", *product(int(held.flags["ckpt.max_num"]), size))
    yield MemoryLine(f"trained {'adapter' if held.lora_rank else 'model'}, bf16", *product(held.trained, BF16))


def why_it_cannot_fit(flags: Flags, gpu_bytes: int | None) -> str | None:
    """Why a run cannot fit, if the memory that is certain does not; activations, logits and the like refuse nothing.

    Also None if the GPU's memory (`gpu_bytes`) or the model's shape is unknown.
    """
    if gpu_bytes is None:
        return None
    try:
        found = estimate(flags, shape_of(str(flags["actor.model_name_or_path"])), gpu_bytes)
    except NoEstimateError:
        return None
    return _states_that_do_not_fit(found, gpu_bytes) or _engine_that_does_not_fit(
        found, gpu_bytes, float(flags["vllm.gpu_memory_utilization"])
    )


def _states_that_do_not_fit(found: MemoryEstimate, gpu_bytes: int) -> str | None:
    phase, needed = found.certain
    if needed <= gpu_bytes:
        return None
    parts = [line for line in found.lines if line.certain and phase in line.phases]
    held = "; ".join(f"{line.name} {line.bytes / GIB:.1f}" for line in parts)
    return (
        f"A GPU has {gpu_bytes / GIB:.1f} GiB, and what is certain alone needs {needed / GIB:.1f} in the phase "
        f"{phase.value!r} ({held}). Use more GPUs with ds.zero_stage 3, ds.adam_offload, ds.lora.rank, or a smaller "
        "model; `restrain show CONFIG --memory` has every line."
    )


def _engine_that_does_not_fit(found: MemoryEstimate, gpu_bytes: int, utilization: float) -> str | None:
    least = [line for line in found.lines if line.certain and line.name.startswith("vLLM")]
    needed = sum(line.bytes for line in least if Phase.GENERATION in line.phases)
    share = utilization * gpu_bytes
    if needed <= share:
        return None
    return (
        f"vllm.gpu_memory_utilization is {utilization:g}: {share / GIB:.1f} of {gpu_bytes / GIB:.1f} GiB, and vLLM "
        f"needs {needed / GIB:.1f} for its weights and one sequence of data.max_len. Raise it, or raise "
        "vllm.tensor_parallel_size."
    )
