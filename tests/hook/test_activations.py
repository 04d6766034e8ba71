"""What a micro-batch's passes hold, measured by torch's profiler in the host's own step: the estimate's factors."""

from types import SimpleNamespace

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from restrain_openrlhf.commands.gpu_check import gradient, host_step
from restrain_openrlhf.config.memory.estimate import estimate
from restrain_openrlhf.config.memory.lines import Phase
from restrain_openrlhf.config.memory.shape import ModelShape
from restrain_openrlhf.hook.fixes import training_step
from tests.config.memory.cases import flags
from tests.hook.test_log_probs import gradient_of, small_policy, step

__all__ = ["step"]
ROLLOUTS = 2


def policy_and_rollouts(sizes, length, rank, checkpointing):
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**sizes), attn_implementation="sdpa")
    if rank:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=rank, target_modules="all-linear"))
    kinds = SimpleNamespace(packing_samples=False)
    policy = host_step.policy_of(model.bfloat16(), SimpleNamespace(ds=kinds, rollout=SimpleNamespace(temperature=1.0)))
    if checkpointing:
        policy.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    sequences, zeros = torch.randint(sizes["vocab_size"], (ROLLOUTS, length)), torch.zeros(ROLLOUTS, length - 1)
    info = {name: values[:ROLLOUTS] for name, values in gradient._scored().items()}
    ones = torch.ones_like(sequences)
    return policy, host_step.experience_of(sequences, ones, torch.ones_like(zeros), zeros, zeros, info)


@pytest.mark.parametrize("checkpointing", [True, False], ids=["checkpointed", "kept"])
@pytest.mark.parametrize("rank", [0, 4], ids=["whole", "adapter"])
@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_bytes_a_token_of_a_step_are_the_estimates(step, monkeypatch, kind, rank, checkpointing):
    """The growth with the length, in which weights have no part. With few words the peak is in a layer, else there."""
    monkeypatch.setattr(training_step, "CHUNK", 16)
    sizes = {"model_type": kind, "hidden_size": 64, "intermediate_size": 512, "num_hidden_layers": 3, "head_dim": 32}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 16 if checkpointing else 2048}
    step(policy_and_rollouts(sizes, 8, rank, checkpointing))
    measured, estimated = [], []
    for length in (256, 512):
        measured.append(step(policy_and_rollouts(sizes, length, rank, checkpointing)))
        changed = {"ds__lora__rank": rank, "actor__gradient_checkpointing_enable": checkpointing}
        found = estimate(flags(data__max_len=length, train__micro_batch_size=ROLLOUTS, **changed), ModelShape(**sizes))
        estimated.append(found.peak_bytes[Phase.LAYERS if checkpointing else Phase.HEAD])
    growth, expected = (each[1] - each[0] for each in (measured, estimated))
    assert growth / expected == pytest.approx(1, abs=0.06)


def test_gradient_checkpointing_gives_the_equal_gradient(step):
    gradients = {}
    for is_on in (True, False):
        (policy, rollouts), ran = small_policy(), []
        if is_on:
            policy.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        policy.model.model.layers[0].mlp.register_forward_pre_hook(lambda *_, ran=ran: ran.append(1))
        step((policy, rollouts))
        gradients[is_on] = gradient_of(policy)
        assert len(ran) == 1 + is_on
    assert torch.equal(*gradients.values())
