"""Wraps DeepspeedStrategy.get_ds_train_config: under dynamic batching, every micro-batch's gradient is kept."""

from collections.abc import Callable
from typing import Any

# Stage 0 adds gradients up in the parameters, and stage 3 until the optimizer's step.
LOSING_STAGES = (1, 2)


def get_ds_train_config(
    wrapped: Callable[..., dict[str, Any]], strategy: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The host's configuration of DeepSpeed, with the end of an accumulation left to `step()` where it matters.

    With dynamic batching the host tells DeepSpeed that each optimizer step has one micro-batch (utils/deepspeed/
    deepspeed.py). ZeRO 1 and 2 of DeepSpeed 0.19.6 then overwrite the gradient at every backward pass
    (runtime/zero/stage_1_and_2.py, independent_gradient_partition_epilogue), and the step uses the last one alone. This
    can go when the host sets `managed_gradient_accumulation` itself.
    """
    config = wrapped(*args, **kwargs)
    if strategy.use_dynamic_batch and strategy.stage in LOSING_STAGES:
        config["managed_gradient_accumulation"] = False
    return config
