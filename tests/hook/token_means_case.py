"""One training step of OpenRLHF's ActorPPOTrainer over the same rollouts, batched in every way, on one or two ranks.

Run as a program, `PORT RANK RANKS`: rank 0 prints, as JSON, what each batching logs, and what it should be. The
rollouts and the policy are those of small_step, with padding on the right. flash-attn needs CUDA, so that packing
runs with the same functions in torch, and attention that keeps packed rollouts apart by their positions.
"""

import json
import os
import sys
from types import SimpleNamespace

from restrain_openrlhf.commands.gpu_check.gradient import BETA, CLIP, GROUP_SIZE, GROUPS, PROMPT_WEIGHTS
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.hook.install.environment import to_environment
from restrain_openrlhf.hook.install.instrument import install
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.method import parse_settings
from tests.hook.small_step import host_trainer, make_case, plain_policy, small_model, weigh_labels

ROLLOUTS = GROUP_SIZE * len(GROUPS)
DYNAMIC = {"train.dynamic_batch_enable": True, "train.max_tokens_per_gpu": 24, "train.micro_batch_size": 1}
PACKED = {"ds.packing_samples": True}
SEQUENCES = {"actor.loss_agg_mode": "seq-mean-token-mean"}
BATCHINGS = {
    "whole": {},
    "micro-batches of 2": {"train.micro_batch_size": 2},
    "micro-batches of 1": {"train.micro_batch_size": 1},
    "dynamic": DYNAMIC,
    "packed": {"train.micro_batch_size": 3, **PACKED},
    "packed and dynamic": {**DYNAMIC, **PACKED},
    "sequences, whole": SEQUENCES,
    "sequences, micro-batches of 1": {"train.micro_batch_size": 1, **SEQUENCES},
    "sequences, dynamic": {**DYNAMIC, **SEQUENCES},
    "two epochs of two optimizer steps": {
        "train.max_epochs": 2,
        "train.batch_size": 6,
        "train.micro_batch_size": 1,
        "actor.adam.lr": 0.0,
    },
}


def main(rank: int, ranks: int) -> dict:
    import torch

    pack_without_flash_attention(torch)
    case = make_case(plain_policy(small_model(torch)))
    logged = {name: step(torch, case, flags, rank, ranks) for name, flags in BATCHINGS.items()}
    return {"logged": logged, "expected": expected(torch, case)}


def step(torch, case, flags, rank, ranks) -> dict[str, float]:
    """What ppo_train returns to the driver: this rank trains on its share of the rollouts."""
    flags = {"train.micro_batch_size": ROLLOUTS // ranks, "actor.entropy_coef": 0.0, **flags}
    _, _, trainer = host_trainer(small_model(torch), flags)
    share = slice(rank * ROLLOUTS // ranks, (rank + 1) * ROLLOUTS // ranks)
    trainer.replay_buffer.append(part(case.experience, share))
    return {name: float(value) for name, value in trainer.ppo_train(BETA).items()}


def part(experience, rows: slice):
    """Some of its rollouts."""
    tensors = ("sequences", "attention_mask", "action_mask", "action_log_probs", "base_action_log_probs")
    return type(experience)(
        **{name: getattr(experience, name)[rows].clone() for name in (*tensors, "total_length")},
        advantages=None,
        info={name: values[rows] for name, values in experience.info.items()},
    )


def expected(torch, case) -> dict[str, float]:
    """The means before the optimizer's step, over all tokens in one go."""
    policy = plain_policy(small_model(torch))
    with torch.no_grad():
        sequences = case.experience.sequences
        log_probs = policy(sequences, case.mask, torch.ones_like(sequences))
        logits = policy.model(sequences).logits[:, :-1].double()
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    difference = (case.base - log_probs).double()
    ratio = (log_probs - case.old).exp()
    weights = torch.tensor(PROMPT_WEIGHTS).repeat_interleave(GROUP_SIZE)[:, None]
    loss = weights * weigh_labels(torch, ratio)
    used = clipped_under_a_pair(torch, case, ratio)

    def mean(values) -> float:
        return float(values[case.mask.bool()].double().mean())

    return {
        "restrain/kl": mean(difference.exp() - 1 - difference),
        "restrain/policy_entropy": mean(entropy),
        "restrain/policy_loss": mean(loss),
        "restrain/clip_ratio": mean(used),
        "restrain/trained_tokens": float(case.mask.sum()),
        "sequences": float(((loss * case.mask).sum(1) / case.mask.sum(1)).mean()),
    }


def clipped_under_a_pair(torch, case, ratio):
    """Where the clipped surrogate is below the other under A⁺ or under A⁻."""
    pairs = [torch.stack(case.experience.info[f"restrain/advantage_{sign}"])[:, None] for sign in ("pos", "neg")]
    return sum((ratio.clamp(1 - CLIP, 1 + CLIP) * pair < ratio * pair).float() for pair in pairs)


def pack_without_flash_attention(torch) -> None:
    """flash_attn.bert_padding's functions, as OpenRLHF uses them."""
    from openrlhf.models import ring_attn_utils

    def unpad(values, mask):
        indices = mask.flatten().nonzero().flatten()
        lengths = mask.sum(1)
        ends = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        return values.flatten(0, 1)[indices], indices, ends, int(lengths.max()), lengths

    def pad(values, indices, batch, length):
        whole = values.new_zeros(batch * length, *values.shape[1:])
        return whole.index_copy(0, indices, values).unflatten(0, (batch, length))

    functions = SimpleNamespace(
        unpad_input=unpad,
        pad_input=pad,
        index_first_axis=lambda values, indices: values[indices],
        rearrange=lambda values, _pattern: values.flatten(0, 1),
    )
    for name, function in vars(functions).items():
        setattr(ring_attn_utils, name, function)


def process_of(port: str, rank: str, ranks: str) -> None:
    """Make this process one of the ranks, hooked; to be called before the host is imported."""
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "RANK": rank,
        "WORLD_SIZE": ranks,
        "LOCAL_RANK": "0",
    }
    os.environ |= to_environment(HookConfig(method=parse_settings({"name": "restrain", "kappa": 2})))
    detect().install()
    install()


if __name__ == "__main__":
    port, rank, ranks = sys.argv[1:]
    process_of(port, rank, ranks)
    found = main(int(rank), int(ranks))
    if rank == "0":
        print(json.dumps(found))
