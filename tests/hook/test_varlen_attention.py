"""Rollouts packed by torch's own attention under OpenRLHF's policy, against each by itself under eager attention."""

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

import torch

from restrain_openrlhf.machine.devices import detect

if detect().name != "cpu":
    pytest.skip("torch's kernel takes no fp64; restrain gpu-check tries it on a GPU", allow_module_level=True)
from openrlhf.models import Actor
from openrlhf.models.ring_attn_utils import unpad_and_slice_tensor

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.machine import flash_attention
from restrain_openrlhf.machine.flash_attention import BY_TORCH, BY_TORCH_IN_TRANSFORMERS
from tests.hook.test_right_padding import LIMIT, MODELS, WINDOW, batch, one_by_one, padded, policy


@pytest.fixture
def load(tmp_path):
    """The host's policy, loaded from a model's files as a training run loads it."""

    def loaded(name="qwen3", **changed):
        model = policy(name, **changed).model
        model.float().save_pretrained(tmp_path)
        packed = Actor(str(tmp_path), attn_implementation=BY_TORCH, packing_samples=True)
        packed.model.double()
        return packed

    return loaded


def eagerly(actor, sequences):
    """The same weights, each sequence by itself."""
    actor.packing_samples = False
    actor.model.set_attn_implementation("eager")
    return one_by_one(actor, sequences)


@pytest.mark.parametrize("name", MODELS)
def test_packed_log_probs_and_gradient_are_those_of_each_sequence_by_itself(name, load):
    sequences, *batched = batch()
    actor = load(name)
    assert actor.model.config._attn_implementation == BY_TORCH_IN_TRANSFORMERS
    log_probs, gradient = padded(actor, *batched)
    expected, whole = eagerly(actor, sequences)
    assert torch.allclose(log_probs, expected, rtol=0, atol=LIMIT)
    assert (gradient - whole).norm() < LIMIT * whole.norm()


def test_padded_on_the_right_it_is_right_too(load):
    sequences, *batched = batch()
    actor = load()
    actor.packing_samples = False
    log_probs, _ = padded(actor, *batched)
    assert torch.allclose(log_probs, eagerly(actor, sequences)[0], rtol=0, atol=LIMIT)


def test_the_layers_of_a_pass_find_the_sequences_once_and_a_changed_batch_anew(monkeypatch):
    """Looking for the sequences makes the device finish its work: it is counted by the search for their beginnings."""
    searches, search = [], torch.Tensor.nonzero
    monkeypatch.setattr(torch.Tensor, "nonzero", lambda given: searches.append(1) or search(given))
    positions = torch.tensor([[0, 1, 2, 0, 1]])
    found = [flash_attention._sequences(positions, 1, 5) for _layer in range(3)]
    assert [(bounds.tolist(), longest) for bounds, longest in found] == [([0, 3, 5], 3)] * 3
    assert len(searches) == 1
    positions[0, 3] = 3
    assert flash_attention._sequences(positions, 1, 5)[1] == 5
    assert len(searches) == 2


def test_a_sliding_window_is_refused(load):
    with pytest.raises(ConfigError, match="sliding window of 3 tokens"):
        padded(load(**WINDOW), *batch()[1:])


def test_tokens_are_packed_without_flash_attn():
    """By the host's own function over our stand-ins of flash_attn.bert_padding."""
    sequences, together, attention = batch()
    packed, positions, _, _, _ = unpad_and_slice_tensor(together, attention, None)
    assert torch.equal(packed[0], torch.cat(sequences))
    assert positions[0].tolist() == [place for each in sequences for place in range(len(each))]
