"""The host's returns as one tensor operation, instead of a Python loop over the tokens."""

from collections.abc import Callable
from typing import Any

import torch


def get_cumulative_returns(
    wrapped: Callable[..., torch.Tensor], maker: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> torch.Tensor:
    """Wraps RemoteExperienceMaker.get_cumulative_returns: rewards (B, T) become sums over what follows, (B, T).

    The numbers are the same except for rounding. A hooked run always has the estimator group_norm, which does not
    discount (trainer/ppo_utils/experience_maker.py, compute_advantages_and_returns); with a discount the host's loop
    runs.
    """
    rewards, mask, gamma = args
    if gamma != 1.0:
        return wrapped(*args, **kwargs)
    masked: torch.Tensor = rewards if mask is None else mask * rewards
    return masked.flip(1).cumsum(1).flip(1)
