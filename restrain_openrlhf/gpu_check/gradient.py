"""One training step's gradient against the paper's loss, in each numeric type and way of batching."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from restrain_openrlhf.gpu_check.children import json_lines, run_module
from restrain_openrlhf.gpu_check.outcome import Outcome, failed, judged, skipped
from restrain_openrlhf.gpu_check.setting import Setting
from restrain_openrlhf.hook.gradient_case import GradientCase, GradientGap

CASES = tuple(
    GradientCase(dtype=dtype, **batching)
    for dtype in ("fp32", "bf16")
    for batching in ({}, {"micro_batches": True}, {"dynamic": True})
)
# flash-attn has no fp32.
PACKED = (GradientCase("bf16", packed=True), GradientCase("bf16", packed=True, dynamic=True))
# Relative to the gradient's norm. A loss without the prompt weight on KL is 0.04 off, one by the net advantage 0.6.
LIMITS = {"fp32": 1e-4, "bf16": 0.02}


def check_gradient(setting: Setting) -> list[Outcome]:
    """All cases in one process; packed ones where flash-attn is there."""
    reason = why_not_packed(setting)
    cases = (*CASES, *(() if reason else PACKED))
    log = setting.folder("gradient") / "gradient.log"
    run_module("restrain_openrlhf.hook.gradient_case", [case.word for case in cases], log)
    *gaps, patches = json_lines(log)
    outcomes = [judge_gradient(GradientGap(**gap)) for gap in gaps]
    outcomes += [skipped(_name(case), reason) for case in PACKED if reason]
    return [*outcomes, judge_patches(patches["not_patched"])]


def judge_gradient(gap: GradientGap) -> Outcome:
    """Failed where the step is not the paper's, or where the case could not tell."""
    case = GradientCase.of(gap.case)
    limit = LIMITS[case.dtype]
    numbers: dict[str, Any] = {"hooked": gap.hooked, "net_advantage": gap.net_advantage}
    numbers["kl_without_prompt_weight"] = gap.kl_without_prompt_weight
    if min(gap.net_advantage, gap.kl_without_prompt_weight) < limit:
        return failed(_name(case), f"a wrong loss is within the limit of {limit:g}: the case shows nothing", **numbers)
    return judged(_name(case), gap.hooked < limit, f"{gap.hooked:.1e} from the paper's (limit {limit:g})", **numbers)


def judge_patches(not_patched: Sequence[str]) -> Outcome:
    """Whether the hook is on in a process that imports the host after it."""
    found = f"not patched: {', '.join(not_patched)}" if not_patched else "every method of the hook's table is patched"
    return judged("hook", not not_patched, found)


def why_not_packed(setting: Setting) -> str:
    """Why packed samples cannot be tried here; empty where they can."""
    if not setting.device.has_gpus:
        return "packing needs flash-attn, which needs CUDA"
    # flash-attn's compiled part; its Python part alone is no use.
    is_there = find_spec("flash_attn_2_cuda") is not None
    return "" if is_there else "flash-attn's kernels are not installed (`make install-flash`)"


def _name(case: GradientCase) -> str:
    return f"gradient: {case.name}"
