"""Token means of a training step: sums and counts of its micro-batches, reduced over ranks once, at the step's end.

They are equal for every way of batching one optimizer step's rollouts, packed or not, and any number of ranks. The
host's own numbers are means over micro-batches of sums divided by the whole step's tokens (trainer/ray/ppo_actor.py,
ppo_train), and depend on all of these.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed

from restrain_openrlhf.records.metrics import CLIPPED, ENTROPY, KL, LOSS, TRAINED_TOKENS

MEANS = (KL, ENTROPY, LOSS, CLIPPED)


@dataclass(frozen=True)
class LossBatch:
    """A micro-batch's response tokens, and what the host divided its sums by (models/loss.py, aggregate_loss).

    `mask` is (B, T). The host's loss times `divisor` is the sum of this micro-batch's `values`: its tokens' losses, or
    with a sequence-level loss its sequences' means. KL and entropy are token-level always, with `token_divisor`.
    """

    mask: torch.Tensor
    divisor: torch.Tensor
    values: torch.Tensor
    token_divisor: torch.Tensor

    @classmethod
    def of(cls, batch: Mapping[str, Any], token_level: bool) -> "LossBatch":
        """From the keyword arguments that the host calls its loss with."""
        mask, ranks = batch["action_mask"], batch["dp_size"]
        per_token, per_sequence = batch["batch_num_tokens"] / ranks, batch["global_batch_size"] / ranks
        if token_level:
            return cls(mask, per_token, mask.sum(), per_token)
        return cls(mask, per_sequence, (mask.sum(dim=-1) > 0).sum(), per_token)


class TokenSums:
    """One rank's sums over a training step: for each of MEANS the sum of its values, and how many they are.

    They stay on the policy's device until the step's end, so that no micro-batch waits for them.
    """

    def __init__(self) -> None:
        self._sums = torch.zeros(len(MEANS), 2, dtype=torch.float64)

    def add(self, name: str, total: torch.Tensor, count: torch.Tensor) -> None:
        """Add `count` values whose sum is `total`, both 0-D."""
        self._sums = self._sums.to(total.device)
        self._sums[MEANS.index(name)] += torch.stack([total.detach().double(), count.double()])

    def add_micro_batch(self, metrics: Mapping[str, Any], batch: LossBatch, kl: torch.Tensor | None) -> None:
        """Add a micro-batch: `metrics` as the host's training_step returns them, `kl` per token, (B, T), unweighted."""
        tokens = batch.mask.sum()
        self.add(LOSS, metrics["policy_loss"] * batch.divisor, batch.values)
        self.add(CLIPPED, torch.where(tokens > 0, metrics["ppo_clip_ratio"] * tokens, 0.0), tokens)
        if "entropy_loss" in metrics:
            self.add(ENTROPY, metrics["entropy_loss"] * batch.token_divisor, tokens)
        if kl is not None:
            self.add(KL, (kl * batch.mask).sum(), tokens)

    def over_ranks(self, group: Any = None) -> dict[str, float]:
        """The means over all ranks of the data-parallel `group`, and the tokens trained on, once for each epoch.

        A mean of no values is left out: without a reference policy there is no KL.
        """
        sums = self._sums.clone()
        if distributed.is_initialized():
            sums = sums.to(torch.cuda.current_device())
            distributed.all_reduce(sums, group=group)
        rows = dict(zip(MEANS, sums.tolist(), strict=True))
        means = {name: total / count for name, (total, count) in rows.items() if count}
        return {**means, TRAINED_TOKENS: rows[CLIPPED][1]}
