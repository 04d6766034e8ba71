"""Makes a step of DeepSpeed's Adam on a CPU a function of its number alone, and not of when the process was started."""

from typing import Any


def adapt_fused_adam(module: Any) -> None:
    """deepspeed/ops/adam/fused_adam.py: the CPU kernel multiplies beta^t up step by step, with pow after a restart.

    The two differ in the last bit (csrc/includes/cpu_adam.h, IncrementStep). CUDA's kernel always uses pow; this can
    go when the CPU's does.
    """
    original = module.FusedAdam.step

    def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        _forget_powers(module, optimizer)
        return original(optimizer, *args, **kwargs)

    module.FusedAdam.step = step


def _forget_powers(module: Any, optimizer: Any) -> None:
    """Have the kernel take step 0 on nothing: the next one is not the one after its last, and so uses pow."""
    import torch  # noqa: PLC0415 - the optimizer has it already

    group, nothing = optimizer.param_groups[0], [torch.empty(0)]
    module.multi_tensor_applier(
        optimizer.multi_tensor_adam,
        optimizer._dummy_overflow_buf,
        [nothing] * 4,
        group["lr"],
        *group["betas"],
        group["eps"],
        0,
        optimizer.adam_w_mode,
        1,
        group["weight_decay"],
    )
