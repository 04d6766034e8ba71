"""One training step of OpenRLHF's ActorPPOTrainer on two ranks with few and many tokens, beside the paper's gradient.

Run as a program, `PORT RANK RANKS` and cases as gpu-check's gradient program takes them: rank 0 prints, for each case,
how far the gradient that all ranks stepped by is from the paper's, which is differentiated over all rollouts at once.
"""

import json
import sys

from restrain_openrlhf.commands.gpu_check import gradient, host_step
from restrain_openrlhf.commands.gpu_check.gradient import (
    BETA,
    CLIP,
    GROUPS,
    PROMPT_TOKENS,
    PROMPT_WEIGHTS,
    GradientCase,
)
from restrain_openrlhf.method.papers_loss import PapersLoss
from tests.hook.token_means_case import part, process_of

FEW = gradient.ROLLOUTS // 2


def apart(case: GradientCase, rank: int, ranks: int) -> float:
    plain, trainer = gradient._prepare(case)
    experience, _ = gradient._experience(plain, case)
    shorten(experience)
    trainer.replay_buffer.append(part(experience, slice(rank * FEW, (rank + 1) * FEW) if ranks > 1 else slice(None)))
    trainer.ppo_train(BETA)
    paper = gradient._direct(plain, experience, PapersLoss(GROUPS, PROMPT_WEIGHTS, BETA, CLIP))
    return float((used_by_all(trainer.actor.model) - paper).norm() / paper.norm())


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
    process_of(port, rank, ranks)
    for word in words:
        found = apart(GradientCase(**json.loads(word)), int(rank), int(ranks))
        if rank == "0":
            print(f"\ndistance {found}", flush=True)
