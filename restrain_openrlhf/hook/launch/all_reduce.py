"""Sums a tensor over every GPU of a Ray cluster by NCCL: whether each GPU has the right sum, and how fast.

As a program, this module prints what it found as one JSON line; `restrain gpu-check` runs it.
"""

import os
import socket
import time
from datetime import timedelta

import ray
import torch
from torch import distributed

from restrain_openrlhf.data.jsonl import dump

# A gibibyte in fp32; a sum between nodes then takes long enough to be timed.
ELEMENTS = 1 << 28
REPEATS = 5
# Values are whole numbers below this, so fp32 holds their sum over some thousand GPUs exactly.
VALUES = 1000
PATIENCE = timedelta(minutes=5)
# The log then names the network that NCCL takes.
TOLD = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}


def all_reduce(backend: str, address: str, rank: int, world: int, device: str, elements: int) -> tuple[int, float]:
    """Sum a tensor over all ranks, each of which calls this: the wrong elements of all sums, and a sum's seconds.

    `address` is HOST:PORT of rank 0. Element i of rank r is (i mod VALUES) + r, so the sum is known without a GPU.
    """
    meeting = f"tcp://{address}"
    distributed.init_process_group(backend, init_method=meeting, rank=rank, world_size=world, timeout=PATIENCE)
    try:
        values = torch.arange(elements, device=device).remainder_(VALUES).float()
        expected = values * world + world * (world - 1) // 2
        found = [_sum(values + rank, expected) for _ in range(REPEATS)]
    finally:
        distributed.destroy_process_group()
    # The first sums also connect the ranks.
    return sum(wrong for wrong, _ in found), min(seconds for _, seconds in found)


def _sum(values: torch.Tensor, expected: torch.Tensor) -> tuple[int, float]:
    """The elements of one sum that are wrong, and its seconds. Reading an element waits for the GPU."""
    values[0].item()
    start = time.monotonic()
    distributed.all_reduce(values)
    values[0].item()
    seconds = time.monotonic() - start
    return int((values != expected).sum()), seconds


class Rank:
    """The process of one GPU, as training's are: a Ray actor that sees no other GPU."""

    def address(self) -> str:
        """This node's HOST:PORT, with a port that is free."""
        with socket.socket() as taken:
            taken.bind(("", 0))
            return f"{ray.util.get_node_ip_address()}:{taken.getsockname()[1]}"

    def all_reduce(self, address: str, rank: int, world: int) -> tuple[int, float]:
        return all_reduce("nccl", address, rank, world, "cuda", ELEMENTS)


def main() -> None:
    """Sum over all GPUs of the cluster that RAY_ADDRESS names, or of this machine."""
    # A submitted job has a runtime environment of its own, which ours is added to.
    os.environ.setdefault("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")
    ray.init(runtime_env={"env_vars": TOLD})
    gpus = int(ray.cluster_resources().get("GPU", 0))
    ranks = [ray.remote(num_gpus=1)(Rank).remote() for _ in range(gpus)]
    places = ray.get([each.address.remote() for each in ranks])
    sums = ray.get([each.all_reduce.remote(places[0], rank, gpus) for rank, each in enumerate(ranks)])
    wrong, seconds = sum(wrong > 0 for wrong, _ in sums), max((seconds for _, seconds in sums), default=0.0)
    nodes = len({place.rpartition(":")[0] for place in places})
    print("\n" + dump({"gpus": gpus, "nodes": nodes, "wrong": wrong, "seconds": seconds, "bytes": 4 * ELEMENTS}))


if __name__ == "__main__":
    main()
