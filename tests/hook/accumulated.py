"""A program: how far DeepSpeed's sum of micro-batches' gradients is from their own, added up in fp64.

DeepSpeed has the configuration that OpenRLHF makes of its flags; its first moment after one step is the gradient that
it used. `python -m tests.hook.accumulated CASE ...`, with cases as JSON, prints a line for each: relative to the norm.
"""

import copy
import json
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
    # Under ZeRO 1, a sum in fp32 has another optimizer of DeepSpeed's (runtime/bf16_optimizer.py).
    if stage == 3 or isinstance(engine.optimizer, BF16_Optimizer):
        moments = [safe_get_full_optimizer_state(each, "exp_avg") for each in engine.module.parameters()]
    else:
        optimizer = engine.optimizer
        places = [each._hp_mapping for each in engine.module.parameters()]
        groups = [optimizer.single_partition_of_fp32_groups[place.param_group_index] for place in places]
        addresses = [place.get_hp_fragment_address() for place in places]
        moments = [
            optimizer.optimizer.state[group]["exp_avg"].narrow(0, address.start, address.numel)
            for group, address in zip(groups, addresses, strict=True)
        ]
    return torch.cat([moment.double().flatten() for moment in moments]) / (1 - BETA)


def distance(stage=2, dtype=None, count=512, managed=True, offload=False):
    torch.manual_seed(0)
    layers = torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8)
    model = torch.nn.Sequential(*layers).bfloat16()
    plain = copy.deepcopy(model)
    engine = engine_of(model, stage, dtype, count, managed, offload)
    total = 0
    for given, wanted in micro_batches(count):
        plain.zero_grad()
        loss_of(plain, given, wanted).backward()
        total = total + torch.cat([each.grad.double().flatten() for each in plain.parameters()]) / count
        loss = loss_of(engine, given, wanted)
        engine.backward(loss if managed else loss / count)
        if managed:
            engine.step()
    if not managed:
        engine.step()
    return float((used(engine, stage) - total).norm() / total.norm())


if __name__ == "__main__":
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    for case in sys.argv[1:]:
        print("distance", distance(**json.loads(case)))
