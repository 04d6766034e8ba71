"""OpenRLHF's own optimizer where nothing compiles CUDA code, against AdamW's paper in fp64, and over a checkpoint.

Run as a program, with the ZeRO stage, `offload` or `stay`, and a folder: prints what it found as JSON.
"""

import json
import os
import sys

from restrain_openrlhf.machine import cuda
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.machine.patching import expect

ADAM = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
STEPS = 3


def strategy(stage, offload):
    from openrlhf.utils import get_strategy
    from openrlhf.utils.config import hierarchize

    from restrain_openrlhf.config.host_flags import parse, to_arguments

    flags = {"train.batch_size": 4, "train.micro_batch_size": 4, "ds.zero_stage": stage, "ds.adam_offload": offload}
    args = hierarchize(parse(to_arguments(flags)))
    args.ds.param_dtype = "fp32"
    made = get_strategy(args)
    made.setup_distributed()
    return made


class ByHand:
    """The mean square of x Wᵀ and its gradient in fp64, and Algorithm 2 of "Decoupled Weight Decay Regularization"."""

    def __init__(self, weight):
        self.weight = weight.detach().double().numpy().copy()
        self.first, self.second, self.steps = 0.0, 0.0, 0

    def step(self, given):
        x = given.double().numpy()
        gradient = 2 * (x @ self.weight.T).T @ x / (len(x) * len(self.weight))
        (beta_1, beta_2), rate = ADAM["betas"], ADAM["lr"]
        self.steps += 1
        self.first = beta_1 * self.first + (1 - beta_1) * gradient
        self.second = beta_2 * self.second + (1 - beta_2) * gradient**2
        mean, square = self.first / (1 - beta_1**self.steps), self.second / (1 - beta_2**self.steps)
        self.weight -= rate * (mean / (square**0.5 + ADAM["eps"]) + ADAM["weight_decay"] * self.weight)


def main(stage, offload, folder):
    detect().install()
    expect([cuda.ADAM])
    import torch

    def batch(number):
        return torch.randn(4, 8, generator=torch.Generator().manual_seed(number))

    host = strategy(stage, offload)
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8, bias=False)
    expected, start = ByHand(model.weight), model.weight.detach().clone()
    config = {"optim": "adam", "adam": ADAM, "lr_scheduler": "constant", "lr_warmup_ratio": 0.0, "scheduler_steps": 10}
    engine, optimizer, _ = host.prepare((model, {**config, "max_norm": 0.0}))

    def step(number):
        engine.backward(engine(batch(number)).square().mean())
        engine.step()

    def weights():
        return engine.module.weight.detach().clone()

    for number in range(STEPS):
        step(number)
        expected.step(batch(number))
    apart = (weights() - torch.from_numpy(expected.weight)).abs().max().item()
    moved = (weights() - start).abs().max().item()
    engine.save_checkpoint(folder)
    step(STEPS)
    whole = weights()
    engine.load_checkpoint(folder)
    step(STEPS)
    inner = optimizer.optimizer
    return {
        "class": f"{type(inner).__module__}.{type(inner).__name__}",
        "fused": inner.defaults["fused"],
        "offloads": engine.zero_use_cpu_optimizer(),
        "apart": apart,
        "moved": moved,
        "resumed_apart": (weights() - whole).abs().max().item(),
    }


if __name__ == "__main__":
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1], RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    found = main(int(sys.argv[2]), sys.argv[3] == "offload", sys.argv[4])
    print(json.dumps(found), flush=True)
