"""Checks the installed stack: what `restrain doctor` finds, and kernels of a training step against exact arithmetic."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from restrain_openrlhf.commands.gpu_check.outcome import RESTRAIN, CheckOutcome, failed, json_lines, judged, measured
from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.machine.flash_attention import varlen_attention

# The limit of a kernel's relative error in bf16, which keeps eight bits.
ROUNDING = 0.02
# HEAD is the size of a head in the models of all presets.
SIZE, HEADS, KEYS, TOKENS, HEAD = 512, 4, 2, 128, 128
# The lengths of packed rollouts, which add up to TOKENS. The blocks of a kernel are 64 or 128 tokens long.
LENGTHS = (1, 70, 57)
# The findings of `restrain doctor` that describe the machine.
MACHINE = ("accelerator", "NVIDIA driver", "attention", "optimizer")


def check_doctor(out: Path, _config: RunConfig | None = None) -> list[CheckOutcome]:
    """Run `restrain doctor`, and report each of its findings that failed."""
    log = out / "stack" / "doctor.log"
    try:
        lines = measured(RESTRAIN, ["doctor", "--json"], log)
    except RunError:
        wrong = [line for line in json_lines(log) if not line["ok"]]
        if not wrong:
            raise
        return [failed(f"stack: {line['name']}", f"{line['found']}. {line['advice']}") for line in wrong]
    machine = "; ".join(line["found"] for line in lines if line["name"] in MACHINE)
    return [judged("driver and packages", True, f"all {len(lines)} lines of `restrain doctor` are ok: {machine}")]


def check_kernels(out: Path, _config: RunConfig | None = None) -> list[CheckOutcome]:
    """Check the matrix product and attention with their gradients, in bf16."""
    (errors,) = measured(__name__, [], out / "stack" / "kernels.log")
    return judge_kernels(errors)


def judge_kernels(errors: Mapping[str, float]) -> list[CheckOutcome]:
    """Judge each kernel by its error relative to full precision."""
    found = {name: f"{error:.1e} from full precision (limit {ROUNDING:g})" for name, error in errors.items()}
    return [judged(f"kernel: {name}", error < ROUNDING, found[name], error=error) for name, error in errors.items()]


def measure() -> dict[str, float]:
    """The errors of kernels on this process's device, relative to the norm of the exact result."""
    import torch  # noqa: PLC0415 - a process of its own measures
    from torch.nn.functional import scaled_dot_product_attention  # noqa: PLC0415

    from restrain_openrlhf.machine.devices import detect  # noqa: PLC0415

    detect().install()
    device = torch.device("cuda" if detect().has_gpus else "cpu")
    shapes = ((1, HEADS, TOKENS, HEAD), *[(1, KEYS, TOKENS, HEAD)] * 2)
    attention = partial(scaled_dot_product_attention, is_causal=True, enable_gqa=True)
    return {
        "matrix product": kernel_error(torch.matmul, torch.matmul, device, (SIZE, SIZE), (SIZE, SIZE)),
        "attention": kernel_error(attention, attention, device, *shapes),
        "packed attention": kernel_error(_packed, partial(_one_by_one, attention), device, *shapes),
    }


def _packed(query: Any, key: Any, value: Any) -> Any:
    """Attention over packed rollouts of LENGTHS, by the kernel that replaces flash-attn's."""
    import torch  # noqa: PLC0415

    positions = torch.cat([torch.arange(length, device=query.device) for length in LENGTHS])[None]
    return varlen_attention(None, query, key, value, None, position_ids=positions)[0]


def _one_by_one(attention: Callable[..., Any], *inputs: Any) -> Any:
    import torch  # noqa: PLC0415

    each = zip(*(tensor.split(LENGTHS, dim=2) for tensor in inputs), strict=True)
    return torch.cat([attention(*rollout) for rollout in each], dim=2).transpose(1, 2)


def kernel_error(kernel: Callable[..., Any], exactly: Callable[..., Any], device: Any, *shapes: Sequence[int]) -> float:
    """The largest error of a kernel in bf16, gradients included, against `exactly` in double precision on the CPU."""
    import torch  # noqa: PLC0415

    generator = torch.Generator().manual_seed(0)
    exact = [torch.randn(*shape, generator=generator).bfloat16().double().requires_grad_() for shape in shapes]
    rounded = [each.detach().to(device, torch.bfloat16).requires_grad_() for each in exact]
    pairs = zip(_with_gradients(exactly, exact), _with_gradients(kernel, rounded), strict=True)
    return max(float((found.double().cpu() - wanted).norm() / wanted.norm()) for wanted, found in pairs)


def _with_gradients(kernel: Callable[..., Any], inputs: Sequence[Any]) -> list[Any]:
    result = kernel(*inputs)
    result.sum().backward()
    return [result.detach(), *(each.grad for each in inputs)]


if __name__ == "__main__":
    sys.stdout.write(dump(measure()))
