"""Refuses a layout that certainly does not fit, by weights, states and vLLM's share alone, before any download."""

from collections.abc import Mapping

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.memory.estimate import MemoryEstimate, estimate
from restrain_openrlhf.memory.layout import NotCoveredError
from restrain_openrlhf.memory.lines import GIB, Phase
from restrain_openrlhf.memory.shape import ShapeUnknownError, shape_of

REMEDY = (
    "Use more GPUs with ds.zero_stage 3, ds.adam_offload, ds.lora.rank, or a smaller model; "
    "`restrain show CONFIG --memory` has every line."
)


def refuse_what_cannot_fit(flags: Mapping[str, object], gpu_bytes: int | None) -> None:
    """Raises ConfigError where what is certain does not fit. Activations, logits and the like never refuse a run.

    Nothing is refused where the GPU's memory (`gpu_bytes`) or the model's shape is not known.
    """
    if gpu_bytes is None:
        return
    try:
        found = estimate(flags, shape_of(str(flags["actor.model_name_or_path"])), gpu_bytes)
    except (ShapeUnknownError, NotCoveredError):
        return
    _refuse_states(found, gpu_bytes)
    _refuse_engine(found, gpu_bytes)


def _refuse_states(found: MemoryEstimate, gpu_bytes: int) -> None:
    phase, needed = found.certain
    if needed > gpu_bytes:
        parts = [line for line in found.lines if line.certain and phase in line.phases]
        held = "; ".join(f"{line.name} {line.bytes / GIB:.1f}" for line in parts)
        raise ConfigError(
            f"A GPU has {gpu_bytes / GIB:.1f} GiB, and what is certain alone needs {needed / GIB:.1f} in the phase "
            f"{phase.value!r} ({held}). {REMEDY}"
        )


def _refuse_engine(found: MemoryEstimate, gpu_bytes: int) -> None:
    least = [line for line in found.lines if line.certain and line.name.startswith("vLLM")]
    needed = sum(line.bytes for line in least if Phase.GENERATION in line.phases)
    share = found.layout.utilization * gpu_bytes
    if needed > share:
        raise ConfigError(
            f"vllm.gpu_memory_utilization is {found.layout.utilization:g}: {share / GIB:.1f} of {gpu_bytes / GIB:.1f} "
            f"GiB, and vLLM needs {needed / GIB:.1f} for its weights and one sequence of data.max_len. Raise it, or "
            "raise vllm.tensor_parallel_size."
        )
