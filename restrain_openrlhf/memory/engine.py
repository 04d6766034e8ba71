"""vLLM's share of a GPU: weights, cache of keys and values, and what stays while it sleeps."""

from collections.abc import Iterator

from restrain_openrlhf.memory.layout import Layout
from restrain_openrlhf.memory.lines import GIB, Line, Phase, product
from restrain_openrlhf.memory.shape import ModelShape

BF16 = 2
# Assumed, not worked out: what a process has on a GPU before its first tensor, and vLLM's graphs and workspace asleep.
CONTEXT = 6 * GIB // 10
ASLEEP = GIB


def token_bytes(layout: Layout, shape: ModelShape) -> int:
    """Keys and values of one token on one GPU of an engine; a head is never split."""
    heads = -(-shape.num_key_value_heads // layout.tensor_parallel)
    return 2 * shape.num_hidden_layers * heads * shape.head_dim * BF16


def engine_lines(layout: Layout, shape: ModelShape, gpu_bytes: int | None) -> Iterator[Line]:
    """What vLLM holds: `gpu_memory_utilization` of the GPU; where that is not known (None), only its least."""
    if not layout.engines:
        return
    text, weights = product(shape.parameters, BF16, divisor=layout.tensor_parallel)
    yield Line("vLLM, weights", text, weights, _awake(layout, Phase.SYNC), True)
    text, least = product(layout.max_len, token_bytes(layout, shape))
    yield Line("vLLM, keys and values of one longest sequence", text, least, _awake(layout), True)
    if gpu_bytes is not None:
        share = int(layout.utilization * gpu_bytes)
        text = f"{layout.utilization:g} × {gpu_bytes:,} − {weights:,} − {least:,}"
        yield Line("vLLM, the rest of its share", text, max(share - weights - least, 0), _awake(layout), True)
    if layout.engine_sleeps:
        yield Line("vLLM asleep (assumed)", "1 GiB", ASLEEP, tuple(_without(layout, Phase.GENERATION)))


def _awake(layout: Layout, *more: Phase) -> tuple[Phase, ...]:
    if layout.engine_shares and not layout.engine_sleeps:
        return layout.policy_phases
    return (Phase.GENERATION, *(more if layout.engine_shares else ()))


def _without(layout: Layout, phase: Phase) -> Iterator[Phase]:
    return (each for each in layout.policy_phases if each is not phase)


def context_lines(layout: Layout) -> Iterator[Line]:
    """CUDA's own memory, for each process that has a context on a GPU; vLLM counts its own within its share."""
    own = 1 + (layout.has_reference and layout.reference_shares) + layout.engine_shares
    text = f"{own} × 0.6 GiB" if own > 1 else "0.6 GiB"
    yield Line("CUDA contexts (assumed)", text, own * CONTEXT, layout.policy_phases)
    if layout.has_reference and not layout.reference_shares:
        yield Line("CUDA context (assumed), reference's GPUs", "0.6 GiB", CONTEXT, (Phase.REFERENCE,))


def sync_lines(layout: Layout, shape: ModelShape) -> Iterator[Line]:
    """One tensor at a time goes to vLLM as a copy."""
    yield Line("largest tensor's copy", *product(shape.embedding, BF16), (Phase.SYNC,))
