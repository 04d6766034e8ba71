"""KL, entropy, loss and clipping of a step are the same numbers, however its rollouts are batched."""

from types import SimpleNamespace

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

import torch

from restrain_openrlhf.hook.policy.actor import PEAK_MEMORY, LossBatch, TokenSums, peak_memory
from restrain_openrlhf.records.metrics import CLIP_RATIO, ENTROPY, KL, LOSS, TRAINED_TOKENS

MASK = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
ALL_TOKENS = 4.0


def sums_of_two_micro_batches(token_level):
    """Per token, KL 1, 2 and 6 in the first micro-batch, and 3 in the second; entropy a tenth of it.

    The losses are KL's opposite. The host divides sums by the step's four tokens, or sequences' means by three.
    """
    normalisers = {"dp_size": 1, "batch_num_tokens": torch.tensor(ALL_TOKENS), "global_batch_size": torch.tensor(3.0)}
    first = LossBatch.of({"action_mask": MASK, **normalisers}, token_level)
    second = LossBatch.of({"action_mask": torch.tensor([[1.0]]), **normalisers}, token_level)
    losses = (-9 / 4, -3 / 4) if token_level else (-(1.5 + 6) / 3, -3 / 3)
    sums = TokenSums()
    for batch, loss, entropy, clipped, kl in (
        (first, losses[0], 0.9 / 4, 1 / 3, torch.tensor([[1.0, 2.0, 99.0], [6.0, 99.0, 99.0]])),
        (second, losses[1], 0.3 / 4, 1.0, torch.tensor([[3.0]])),
    ):
        metrics = {"policy_loss": loss, "entropy_loss": entropy, "ppo_clip_ratio": clipped}
        sums.add_micro_batch({name: torch.tensor(value) for name, value in metrics.items()}, batch, kl)
    return sums


def test_means_worked_by_hand():
    """(1 + 2 + 6 + 3) / 4 tokens; 1 of 3 and 1 of 1 tokens clipped."""
    expected = {KL: 3.0, ENTROPY: 0.3, LOSS: -3.0, CLIP_RATIO: 0.5, TRAINED_TOKENS: 4}
    assert sums_of_two_micro_batches(token_level=True).over_ranks() == pytest.approx(expected)


def test_a_sequence_level_loss_is_a_mean_over_sequences():
    """−(1.5 + 6 + 3) / 3."""
    assert sums_of_two_micro_batches(token_level=False).over_ranks()[LOSS] == pytest.approx(-3.5)


def test_what_was_not_computed_is_left_out():
    sums = TokenSums()
    batch = LossBatch(MASK, torch.tensor(3.0), torch.tensor(3.0), torch.tensor(3.0))
    sums.add_micro_batch({"policy_loss": torch.tensor(2.0), "ppo_clip_ratio": torch.tensor(0.0)}, batch, None)
    assert sums.over_ranks() == {LOSS: 2.0, CLIP_RATIO: 0.0, TRAINED_TOKENS: 3.0}
    assert TokenSums().over_ranks() == {TRAINED_TOKENS: 0.0}


def test_a_micro_batch_without_a_response_token_changes_nothing():
    """The host's clip ratio of it is 0 / 0."""
    sums = sums_of_two_micro_batches(token_level=True)
    before = sums.over_ranks()
    empty = LossBatch(torch.zeros(1, 2), torch.tensor(4.0), torch.tensor(0.0), torch.tensor(4.0))
    metrics = {"policy_loss": 0.0, "entropy_loss": 0.0, "ppo_clip_ratio": float("nan")}
    sums.add_micro_batch({name: torch.tensor(value) for name, value in metrics.items()}, empty, torch.ones(1, 2))
    assert sums.over_ranks() == before


def test_peak_memory_is_the_fullest_gpus_and_begins_anew(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 7)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: asked.append("reset"))
    strategy = SimpleNamespace(all_reduce=lambda value, op: asked.append((value, op)) or 9.0)
    assert peak_memory(strategy) == {PEAK_MEMORY: 9.0}
    assert asked == [(7.0, "max"), "reset"]
