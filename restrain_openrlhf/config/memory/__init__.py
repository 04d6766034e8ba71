"""How much memory a layout needs: arithmetic on OpenRLHF's flags and a model's shape that can be checked by hand."""

from restrain_openrlhf.config.host_flags import Flags
from restrain_openrlhf.config.memory.estimate import CONTEXT, estimate
from restrain_openrlhf.config.memory.lines import GIB, TRAINING, MemoryEstimate, Phase, as_markdown
from restrain_openrlhf.config.memory.shape import ModelShape, NoEstimateError, shape_of

__all__ = [
    "CONTEXT",
    "GIB",
    "TRAINING",
    "ModelShape",
    "NoEstimateError",
    "Phase",
    "as_markdown",
    "estimate",
    "shape_of",
    "why_it_cannot_fit",
]


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
