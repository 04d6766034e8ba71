"""Token means of a training step: sums and counts over micro-batches, reduced over ranks once at the step's end.

They do not depend on how an optimizer step's rollouts are batched, on packing, or on the number of ranks. The host's
own numbers do: they are means over micro-batches of sums divided by the whole step's tokens (trainer/ray/ppo_actor.py,
ppo_train).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed

from restrain_openrlhf.records.metrics import CLIP_RATIO, ENTROPY, KL, LOSS, TRAINED_TOKENS

MEANS = (KL, ENTROPY, LOSS, CLIP_RATIO)


@dataclass(frozen=True)
class LossBatch:
    """The response tokens of a micro-batch, and what the host divided its sums by (models/loss.py, aggregate_loss).

    `mask` is (B, T). The host's loss times `divisor` is a sum over `values` terms: the losses of tokens, or with a
    sequence-level loss the means of sequences. KL and entropy are always token-level, with `token_divisor`.
    """

    mask: torch.Tensor
    divisor: torch.Tensor
    values: torch.Tensor
    token_divisor: torch.Tensor

    @classmethod
    def of(cls, batch: Mapping[str, Any], token_level: bool) -> "LossBatch":
        """From the keyword arguments of the host's loss."""
        mask, ranks = batch["action_mask"], batch["dp_size"]
        per_token, per_sequence = batch["batch_num_tokens"] / ranks, batch["global_batch_size"] / ranks
        if token_level:
            return cls(mask, per_token, mask.sum(), per_token)
        return cls(mask, per_sequence, (mask.sum(dim=-1) > 0).sum(), per_token)


class TokenSums:
    """The sums of one rank over a training step: the sum and the number of values for each name of MEANS.

    They stay on the policy's device until the end of the step, so that no micro-batch waits for them.
    """

    def __init__(self) -> None:
        self._sums = torch.zeros(len(MEANS), 2, dtype=torch.float64)

    def add(self, name: str, total: torch.Tensor, count: torch.Tensor) -> None:
        """Add `count` values whose sum is `total`, both 0-D."""
        self._sums = self._sums.to(total.device)
        self._sums[MEANS.index(name)] += torch.stack([total.detach().double(), count.double()])

    def add_micro_batch(self, metrics: Mapping[str, Any], batch: LossBatch, kl: torch.Tensor | None) -> None:
        """Add a micro-batch: the `metrics` of the host's training_step, and the unweighted `kl` per token (B, T)."""
        tokens = batch.mask.sum()
        self.add(LOSS, metrics["policy_loss"] * batch.divisor, batch.values)
        self.add(CLIP_RATIO, torch.where(tokens > 0, metrics["ppo_clip_ratio"] * tokens, 0.0), tokens)
        if "entropy_loss" in metrics:
            self.add(ENTROPY, metrics["entropy_loss"] * batch.token_divisor, tokens)
        if kl is not None:
            self.add(KL, (kl * batch.mask).sum(), tokens)

    def over_ranks(self, group: Any = None) -> dict[str, float]:
        """The means over all ranks of the data-parallel `group`, and the tokens trained on, counted in each epoch.

        A mean without values is left out, such as KL without a reference policy.
        """
        sums = self._sums.clone()
        if distributed.is_initialized():
            sums = sums.to(torch.cuda.current_device())
            distributed.all_reduce(sums, group=group)
        rows = dict(zip(MEANS, sums.tolist(), strict=True))
        means = {name: total / count for name, (total, count) in rows.items() if count}
        return {**means, TRAINED_TOKENS: rows[CLIP_RATIO][1]}
