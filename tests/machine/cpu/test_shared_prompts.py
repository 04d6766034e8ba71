"""Rollouts that share their prompt's computation: the numbers of each rollout computed by itself, from fewer tokens."""

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from restrain_openrlhf.machine.devices import detect

if detect().name != "cpu":
    pytest.skip("the CUDA stack is installed, which computes the host's own batches", allow_module_level=True)
detect().install()

import torch  # noqa: E402
from transformers import LlamaForCausalLM  # noqa: E402

from restrain_openrlhf.machine.cpu import shared_prompts  # noqa: E402
from tests.hook.test_right_padding import LIMIT, MODELS, VOCABULARY, policy  # noqa: E402

END = 2
LONG, SHORT, ONE = (5, 6, 7, 8, 9, 10, 11, 12), (5, 6, 7), (4,)
# Rollouts in the order of a shuffled micro-batch: a prompt, and how many tokens of response follow it.
ROLLOUTS = ((LONG, 4), (SHORT, 3), (LONG, 1), (ONE, 5), (LONG, 7), (SHORT, 6), (LONG, 0), (LONG, 2), (ONE, 1))


@pytest.fixture(autouse=True)
def _large_enough(monkeypatch):
    monkeypatch.setattr(shared_prompts, "LEAST_PARAMETERS", 0)


@pytest.fixture
def batch():
    """Sequences, action mask and attention mask; a token in the middle of the longest response is another speaker's."""
    generator = torch.Generator().manual_seed(1)
    width = max(len(prompt) + size for prompt, size in ROLLOUTS)
    sequences = torch.full((len(ROLLOUTS), width), END)
    action, attention = torch.zeros(len(ROLLOUTS), width - 1), torch.zeros_like(sequences)
    for row, (prompt, size) in enumerate(ROLLOUTS):
        end = len(prompt) + size
        response = torch.randint(3, VOCABULARY, (size,), generator=generator)
        sequences[row, :end] = torch.cat([torch.tensor(prompt), response])
        action[row, len(prompt) - 1 : end - 1] = attention[row, :end] = 1
    action[4, len(LONG) + 2] = 0
    return sequences, action, attention


def judged(actor, log_probs):
    """The log-probabilities, in one row, and the gradient of a weighted sum of them."""
    actor.zero_grad()
    (log_probs * torch.linspace(-1, 2, len(log_probs))).sum().backward()
    return log_probs.detach(), torch.cat([each.grad.flatten() for each in actor.parameters()])


def shared(actor, batch, **asked):
    sequences, action, attention = batch
    return actor(sequences, action, attention_mask=attention, **asked)


@pytest.fixture
def widths(monkeypatch):
    """How many tokens each call of a model has computed."""
    found, original = [], LlamaForCausalLM.forward

    def noted(self, input_ids, *args, **kwargs):
        found.append(input_ids.numel())
        return original(self, input_ids, *args, **kwargs)

    monkeypatch.setattr(LlamaForCausalLM, "forward", noted)
    return found


def one_by_one(actor, batch):
    """Log-probabilities and entropies of the same tokens from each rollout without padding and without company."""
    found = []
    for row, mask, attention in zip(*batch, strict=True):
        end = int(attention.sum())
        ones = torch.ones(1, end, dtype=torch.long)
        asked = {"return_output": True, "return_logprobs": True, "return_entropy": True}
        log_probs, output = actor(row[None, :end], attention_mask=ones, **asked)
        found.append(torch.stack([log_probs[0], output.entropy[0]])[:, mask[: end - 1].bool()])
    return torch.cat(found, dim=1)


@pytest.mark.parametrize("room", [512, 14])
@pytest.mark.parametrize("name", MODELS)
def test_log_probs_entropy_and_gradient_are_those_of_each_rollout_by_itself(batch, name, room, monkeypatch):
    monkeypatch.setattr(shared_prompts, "ROW_TOKENS", room)
    monkeypatch.setattr(shared_prompts, "LEAST_SAVED", -10.0)
    together, alone, acts = policy(name), policy(name, "eager"), batch[1].bool()
    expected, entropies = one_by_one(alone, batch)
    found, output = shared(together, batch, return_output=True, return_entropy=True)
    assert not found[~acts].any(), "a token that is not trained on has 0, as the host gives it"
    assert torch.allclose(output.entropy[acts], entropies, rtol=0, atol=LIMIT)
    log_probs, gradient = judged(together, found[acts])
    expected, whole = judged(alone, expected)
    assert torch.allclose(log_probs, expected, rtol=0, atol=LIMIT)
    assert (gradient - whole).norm() < LIMIT * whole.norm()


def test_each_prompt_is_computed_once(batch, widths):
    shared(policy("llama"), batch)
    longest_row = len(LONG) - 1 + sum(size + 1 for prompt, size in ROLLOUTS if prompt is LONG)
    assert widths == [3 * longest_row], "of three prompts; the host computes 9 rollouts of 15 tokens"
    assert 3 * longest_row < 0.9 * batch[0].numel()


def test_a_small_models_batches_stay_as_they_came(batch, widths, monkeypatch):
    monkeypatch.setattr(
        shared_prompts, "LEAST_PARAMETERS", 1 + sum(each.numel() for each in policy("llama").parameters())
    )
    shared(policy("llama"), batch)
    assert widths == [batch[0].numel()]


def padded_on_the_left(sequences, action, attention):
    return sequences.flip(1), action.flip(1), attention.flip(1)


def of_different_prompts(sequences, action, attention):
    sequences[:, 0] = torch.arange(3, 3 + len(sequences))
    return sequences, action, attention


@pytest.mark.parametrize(
    ("changed", "model"),
    [
        (of_different_prompts, {}),
        (padded_on_the_left, {}),
        (None, {"name": "qwen3", "sliding_window": 3, "use_sliding_window": True, "max_window_layers": 0}),
        (None, {"attention": "eager"}),
    ],
)
def test_where_it_cannot_be_shared_the_host_computes_the_batch_as_it_came(batch, changed, model):
    batch = changed(*batch) if changed else batch
    sequences, action, attention = batch
    actor = policy(**{"name": "llama", **model})
    assert torch.equal(shared(actor, batch), actor.forward.__wrapped__(sequences, action, attention_mask=attention))
    assert not actor.model._forward_pre_hooks
