"""A program: how far DeepSpeed's sum of micro-batches' gradients is from their own, added up in fp64.

DeepSpeed has the configuration that OpenRLHF makes of its flags; its first moment after one step is the gradient that
it used. `python -m tests.hook.accumulated RANKS RANK CASE ...`, with cases as JSON, prints a line for each: relative to
the norm. Of several processes, which meet at the environment's STORE (a file), each has its share of the micro-batches.
"""

import copy
import json
import os
import sys

import torch

from restrain_openrlhf.commands.gpu_check.host_step import prepare_process

prepare_process()

import deepspeed  # noqa: E402
import torch.distributed  # noqa: E402
from deepspeed.runtime.bf16_optimizer import BF16_Optimizer  # noqa: E402
from deepspeed.utils import safe_get_full_optimizer_state  # noqa: E402
from openrlhf.utils.deepspeed.deepspeed_utils import get_train_ds_config  # noqa: E402

BETA = 0.9


def engine_of(model, stage, dtype, count, managed, offload):
    config = get_train_ds_config(
        offload=False,
        adam_offload=offload,
        stage=stage,
        param_dtype="bf16",
        max_norm=0.0,
        grad_accum_dtype=dtype,
    )
    adam = {"lr": 1e-3, "betas": [BETA, 0.95], "torch_adam": True}
    config |= {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": count if managed else 1,
        "optimizer": {"type": "Adam", "params": adam},
    }
    if not managed:
        config["managed_gradient_accumulation"] = False
    return deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())[0]


def micro_batches(count):
    """Inputs and targets with something in common, as a batch's have."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        given = torch.randn(4, 32, generator=generator)
        yield given.bfloat16(), (given[:, :8] * 0.5 + 1).bfloat16()


def loss_of(model, given, wanted):
    return ((model(given) - wanted).float() ** 2).mean()


def used(engine, stage):
    """In all processes, whole."""
    # Under ZeRO 1, a sum in fp32 has another optimizer of DeepSpeed's (runtime/bf16_optimizer.py).
    if stage == 3 or isinstance(engine.optimizer, BF16_Optimizer):
        moments = [safe_get_full_optimizer_state(each, "exp_avg") for each in engine.module.parameters()]
    else:
        moments = [whole_moment(engine.optimizer, each) for each in engine.module.parameters()]
    return torch.cat([moment.double().flatten() for moment in moments]) / (1 - BETA)


def whole_moment(optimizer, parameter):
    """Of the parts that the processes have of it."""
    whole, place = torch.zeros(parameter.numel()), parameter._hp_mapping
    if place is not None:
        there, here = place.lp_fragment_address, place.get_hp_fragment_address()
        moments = optimizer.optimizer.state[optimizer.single_partition_of_fp32_groups[place.param_group_index]]
        whole.narrow(0, there.start, there.numel).copy_(moments["exp_avg"].narrow(0, here.start, here.numel))
    torch.distributed.all_reduce(whole)
    return whole


def distance(stage=2, dtype=None, count=512, managed=True, offload=False):
    torch.manual_seed(0)
    layers = torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8)
    model = torch.nn.Sequential(*layers).bfloat16()
    plain = copy.deepcopy(model)
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    engine = engine_of(model, stage, dtype, count // ranks, managed, offload)
    total = 0
    for place, (given, wanted) in enumerate(micro_batches(count)):
        plain.zero_grad()
        loss_of(plain, given, wanted).backward()
        total = total + torch.cat([each.grad.double().flatten() for each in plain.parameters()]) / count
        if place % ranks != rank:
            continue
        loss = loss_of(engine, given, wanted)
        engine.backward(loss if managed else loss * ranks / count)
        if managed:
            engine.step()
    if not managed:
        engine.step()
    return float((used(engine, stage) - total).norm() / total.norm())


if __name__ == "__main__":
    ranks, rank = int(sys.argv[1]), sys.argv[2]
    os.environ |= {"WORLD_SIZE": str(ranks), "RANK": rank}
    store = torch.distributed.FileStore(os.environ["STORE"], ranks) if ranks > 1 else torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=int(rank), world_size=ranks)
    for case in sys.argv[3:]:
        print("distance", distance(**json.loads(case)))
