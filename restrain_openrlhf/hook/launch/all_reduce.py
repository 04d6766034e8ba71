"""Sums a tensor over every GPU of a Ray cluster by NCCL: whether each GPU has the right sum, and how fast.

As a program, this module prints what it found as one JSON line; `restrain gpu-check` runs it.
"""

import os
import sys
import time
from datetime import timedelta

import ray
import torch
from torch import distributed
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from restrain_openrlhf.data.jsonl import dump

# A gibibyte in fp32; a sum between nodes then takes long enough to be timed.
ELEMENTS = 1 << 28
REPEATS = 5
# Values are whole numbers below this, so fp32 holds their sum over some thousand GPUs exactly.
VALUES = 1000
PATIENCE = timedelta(minutes=5)
# The log then names the network that NCCL takes.
TOLD = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}


def all_reduce(
    backend: str, host: str, port: int, rank: int, world: int, device: str, elements: int = ELEMENTS
) -> tuple[int, float]:
    """Sum a tensor over all ranks, each of which calls this: the wrong elements of all sums, and a sum's seconds.

    They meet at the TCPStore on `host`. Element i of rank r is (i mod VALUES) + r, so the sum is known beforehand.
    """
    store = TCPStore(host, port, is_master=False, timeout=PATIENCE)
    distributed.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=PATIENCE)
    values = torch.arange(elements, device=device).remainder_(VALUES).float()
    expected = values * world + world * (world - 1) // 2
    found = [_sum(values + rank, expected) for _ in range(REPEATS)]
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


def rank_on_gpu(host: str, port: int, rank: int, world: int) -> tuple[str, int, float]:
    """As `all_reduce`, on one GPU, of which the process sees no other, as training's do; its node comes first."""
    return ray.util.get_node_ip_address(), *all_reduce("nccl", host, port, rank, world, "cuda")


def main() -> None:
    """Sum over all GPUs of the cluster that RAY_ADDRESS names, or of this machine."""
    # A submitted job has a runtime environment of its own, which ours is added to.
    os.environ.setdefault("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")
    ray.init(runtime_env={"env_vars": TOLD})
    host, gpus = ray.util.get_node_ip_address(), int(ray.cluster_resources().get("GPU", 0))
    store = TCPStore(host, 0, is_master=True, wait_for_workers=False)
    place = ray.remote(num_gpus=1, max_retries=0)(rank_on_gpu)
    found = ray.get([place.remote(host, store.port, rank, gpus) for rank in range(gpus)])
    nodes, wrong, seconds = zip(*found, strict=True)
    # NCCL's own measure, the bus bandwidth.
    speed = 2 * (gpus - 1) / gpus * 4 * ELEMENTS / max(seconds) / 1e9
    result = {"gpus": gpus, "nodes": len({*nodes}), "wrong": sum(map(bool, wrong)), "gb_per_second": speed}
    sys.stdout.write("\n" + dump(result))


if __name__ == "__main__":
    main()
