"""The reward of the stock run: whether the response has the answer. OpenRLHF loads this file (reward.remote_url)."""

from collections.abc import Sequence

import torch


def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[str]) -> dict[str, torch.Tensor]:
    """Rewards (B,) of texts, each a prompt with its response."""
    del prompts
    boxed = [f"\\boxed{{{label}}}" for label in labels]
    rewards = torch.tensor([float(answer in text) for text, answer in zip(queries, boxed, strict=True)])
    return {"rewards": rewards, "scores": rewards}
