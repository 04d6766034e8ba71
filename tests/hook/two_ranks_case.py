"""One training step of OpenRLHF's ActorPPOTrainer on two ranks with few and many tokens, beside the paper's numbers.

Run as a program, `PORT RANK RANKS` and cases as gpu-check's gradient program takes them: rank 0 prints, for each case,
how far the gradient that all ranks stepped by is from the paper's, which is differentiated over all rollouts at once,
and the token means that the step logs beside those over all tokens in one go.
"""

import json
import os
import sys
from dataclasses import replace

from restrain_openrlhf.commands.gpu_check import gradient, host_step
from restrain_openrlhf.commands.gpu_check.gradient import (
    BETA,
    CLIP,
    GROUPS,
    PROMPT_TOKENS,
    PROMPT_WEIGHTS,
    GradientCase,
)
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.hook.install.environment import to_environment
from restrain_openrlhf.hook.install.instrument import install
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.method import parse_settings
from restrain_openrlhf.method.papers_loss import PapersLoss

PAPER = PapersLoss(GROUPS, PROMPT_WEIGHTS, BETA, CLIP)
FEW = gradient.ROLLOUTS // 2


def step(case: GradientCase, rank: int, ranks: int) -> dict[str, object]:
    plain, trainer = gradient._prepare(case)
    experience, _ = gradient._experience(plain, case)
    shorten(experience)
    # At 0 the host logs the entropy and does not train on it.
    trainer.args.actor.entropy_coef = 0.0
    trainer.replay_buffer.append(part(experience, slice(rank * FEW, (rank + 1) * FEW) if ranks > 1 else slice(None)))
    expected = means(plain, experience)
    logged = trainer.ppo_train(BETA)
    paper = gradient._direct(plain, experience, PAPER)
    apart = float((used_by_all(trainer.actor.model) - paper).norm() / paper.norm())
    return {
        "distance": apart,
        "expected": expected,
        "logged": {name: float(logged[name]) for name in expected},
        "names": [*logged],
    }


def means(policy, experience) -> dict[str, float]:
    """Over all response tokens, before the optimizer's step."""
    import torch

    mask, old, sequences = experience.action_mask, experience.action_log_probs, experience.sequences
    with torch.no_grad():
        logits = policy.model(sequences, attention_mask=experience.attention_mask).logits[:, :-1].float()
        log_probs = logits.log_softmax(-1).gather(-1, sequences[:, 1:, None])[..., 0] * mask
        loss = replace(PAPER, beta=0.0).loss(log_probs, old, experience.base_action_log_probs, mask)
    difference, ratio = experience.base_action_log_probs - log_probs, (log_probs - old).exp()
    pairs = [torch.stack(experience.info[f"restrain/advantage_{sign}"])[:, None] for sign in ("pos", "neg")]
    clipped = sum((ratio.clamp(1 - CLIP, 1 + CLIP) * pair < ratio * pair).float() for pair in pairs)

    def mean(values) -> float:
        return float(values[mask.bool()].double().mean())

    return {
        "restrain/kl": mean(difference.exp() - 1 - difference),
        "restrain/policy_entropy": mean(torch.distributions.Categorical(logits=logits).entropy()),
        "restrain/policy_loss": float(loss),
        "restrain/clip_ratio": mean(clipped),
        "restrain/trained_tokens": float(mask.sum()),
    }


def part(experience, rows: slice):
    """Some of its rollouts."""
    tensors = ("sequences", "attention_mask", "action_mask", "action_log_probs", "base_action_log_probs")
    return type(experience)(
        **{name: getattr(experience, name)[rows].clone() for name in (*tensors, "total_length")},
        advantages=None,
        info={name: values[rows] for name, values in experience.info.items()},
    )


def shorten(experience) -> None:
    """The first rank's rollouts have a token or two each, the second's up to seven."""
    for row in range(FEW):
        end = PROMPT_TOKENS + 1 + row % 2
        experience.attention_mask[row, end:] = 0
        experience.action_mask[row, end - 1 :] = 0
    experience.total_length = experience.attention_mask.sum(1)


def used_by_all(engine):
    """Adam's first moment after the first step, put together from the parts that ZeRO leaves to each rank."""
    import torch
    from deepspeed.runtime.bf16_optimizer import BF16_Optimizer
    from deepspeed.utils import safe_get_full_optimizer_state
    from torch import distributed

    optimizer, is_divided = engine.optimizer, hasattr(engine.optimizer, "single_partition_of_fp32_groups")
    is_whole = engine.zero_optimization_stage() == host_step.PARTITIONED or isinstance(optimizer, BF16_Optimizer)
    moments = []
    for parameter in host_step.trained(engine.module):
        if is_whole:
            moments.append(safe_get_full_optimizer_state(parameter, "exp_avg").flatten().double())
        elif not is_divided:
            moments.append(optimizer.state[parameter]["exp_avg"].flatten().double())
        else:
            moments.append(own_part(torch, optimizer, parameter))
    found = torch.cat(moments)
    if is_divided and not is_whole:
        distributed.all_reduce(found)
    return found / (1 - host_step.BETA_1)


def own_part(torch, optimizer, parameter):
    """This rank's fragment of a parameter's moment in its place, and 0 elsewhere."""
    whole, place = torch.zeros(parameter.numel(), dtype=torch.float64), getattr(parameter, "_hp_mapping", None)
    if place is not None:
        group = optimizer.single_partition_of_fp32_groups[place.param_group_index]
        held, target = place.get_hp_fragment_address(), place.lp_fragment_address
        moment = optimizer.optimizer.state[group]["exp_avg"].narrow(0, held.start, held.numel)
        whole[target.start : target.start + target.numel] = moment.double()
    return whole


if __name__ == "__main__":
    port, rank, ranks, *words = sys.argv[1:]
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "RANK": rank,
        "WORLD_SIZE": ranks,
        "LOCAL_RANK": "0",
    }
    os.environ |= to_environment(HookConfig(method=parse_settings({"name": "restrain", "kappa": 2})))
    # Before the host is imported.
    detect().install()
    install()
    for word in words:
        found = step(GradientCase(**json.loads(word)), int(rank), int(ranks))
        if rank == "0":
            print("\n" + json.dumps(found), flush=True)
