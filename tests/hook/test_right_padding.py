"""A batch that is padded on the right: the same log-probabilities and gradient, and no mask before torch's attention.

Held against each sequence by itself, without padding, under transformers' eager attention.
"""

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

import torch
from openrlhf.models import Actor
from openrlhf.utils.utils import zero_pad_sequences
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from restrain_openrlhf.hook.fixes.training_step import is_right_padded
from restrain_openrlhf.hook.install.instrument import CONTRACT, install
from restrain_openrlhf.machine.patching import expect_no_more

LENGTHS = (9, 4, 13, 2)
VOCABULARY = 32
# The model is fp64, and the host makes its logits fp32.
LIMIT = 1e-6
# Four query heads on two key heads, as in every model of the presets.
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
WINDOW = {"sliding_window": 3, "use_sliding_window": True, "max_window_layers": 0}
MODELS = {"qwen3": (Qwen3ForCausalLM, Qwen3Config), "llama": (LlamaForCausalLM, LlamaConfig)}


@pytest.fixture(autouse=True)
def _hooked():
    install()
    yield
    expect_no_more(CONTRACT)


@pytest.fixture
def calls(monkeypatch):
    """What torch's attention is given: whether there is a mask, and whether it is told `is_causal`."""
    made, attention = [], functional.scaled_dot_product_attention

    def noted(*args, attn_mask=None, is_causal=False, **kwargs):
        made.append((attn_mask is not None, bool(is_causal)))
        return attention(*args, attn_mask=attn_mask, is_causal=is_causal, **kwargs)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", noted)
    return made


def policy(name="qwen3", attention="sdpa", **changed):
    torch.manual_seed(0)
    model, config = MODELS[name]
    found = Actor(model(config(**SHAPE, **changed)).double())
    found.model.set_attn_implementation(attention)
    found.packing_samples, found.temperature = False, 1.0
    return found


def batch(side="right"):
    generator = torch.Generator().manual_seed(1)
    sequences = [torch.randint(3, VOCABULARY, (length,), generator=generator) for length in LENGTHS]
    attention = [torch.ones_like(each) for each in sequences]
    together = (zero_pad_sequences(rows, side, value, stack=True) for rows, value in ((sequences, 2), (attention, 0)))
    return sequences, *together


def judged(actor, log_probs):
    """The log-probabilities, in one row, and the gradient of a weighted sum of them."""
    actor.zero_grad()
    (log_probs * torch.linspace(-1, 2, len(log_probs), dtype=log_probs.dtype)).sum().backward()
    return log_probs.detach(), torch.cat([each.grad.flatten() for each in actor.parameters()])


def padded(actor, sequences, attention):
    """Of every token that follows a token."""
    found = actor(sequences, attention_mask=attention, return_logprobs=True)
    return judged(actor, found[(attention[:, 1:] * attention[:, :-1]).bool()])


def one_by_one(actor, sequences):
    """The same without any padding."""
    rows = [each[None] for each in sequences]
    found = [actor(row, attention_mask=torch.ones_like(row), return_logprobs=True)[0] for row in rows]
    return judged(actor, torch.cat(found))


@pytest.mark.parametrize(
    ("name", "side", "changed", "mask"),
    [
        ("qwen3", "right", {}, False),
        ("llama", "right", {}, False),
        ("qwen3", "left", {}, True),
        ("qwen3", "right", WINDOW, True),
    ],
)
def test_log_probs_and_gradient_are_those_of_each_sequence_by_itself(name, side, changed, mask, calls):
    sequences, *batched = batch(side)
    log_probs, gradient = padded(policy(name, **changed), *batched)
    assert set(calls) == {(mask, not mask)}
    expected, whole = one_by_one(policy(name, "eager", **changed), sequences)
    assert torch.allclose(log_probs, expected, rtol=0, atol=LIMIT)
    assert (gradient - whole).norm() < LIMIT * whole.norm()


def test_without_the_hook_padding_is_a_mask(calls):
    """What the fix is for; when this fails, the fix can go."""
    expect_no_more(CONTRACT)
    padded(policy(), *batch()[1:])
    assert set(calls) == {(True, False)}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [([[1, 1, 0], [1, 1, 1]], True), ([[1, 0, 0], [0, 1, 1]], False), ([[1, 0, 1]], False), ([[0, 0, 0]], True)],
)
def test_what_is_padded_on_the_right(rows, expected):
    assert is_right_padded(torch.tensor(rows).bool()) is expected
