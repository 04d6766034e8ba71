"""What the policy's first rank sends at a weight sync, and what is computed of it for many GPUs.

Measured: the bytes and the time of pickling the CUDA handles of W GPUs, which OpenRLHF sends with each weight to every
engine where policy and engines share GPUs (trainer/ray/ppo_actor.py, broadcast_to_vllm), and the time that a Ray call
to an actor takes its caller, of which there is one for each weight and engine. Both are CPU time of this process alone.
A handle here has the parts of a real one, without a GPU. The copies of the weights themselves, and what an engine does
with a call, are not in it.
"""

import argparse
import os
import statistics
import time
import uuid
from collections.abc import Callable

import ray
import torch
from rich.console import Console
from rich.table import Table
from torch.multiprocessing.reductions import rebuild_cuda_tensor

REPEATS, CALLS = 7, 300


def handles(gpus: int) -> dict[str, object]:
    """As torch's reduce_tensor gives them for a CUDA tensor, by the GPU's identity."""
    return {
        f"GPU-{uuid.uuid4()}": (
            rebuild_cuda_tensor,
            (torch.Tensor, (4096, 4096), (4096, 1), 0, torch.UntypedStorage, torch.bfloat16, 0, os.urandom(66),
             33_554_432, 0, False, os.urandom(64), 0, os.urandom(64), True),
        )
        for _ in range(gpus)
    }  # fmt: skip


def median_seconds(run: Callable[[], object]) -> float:
    """CPU seconds of this process: the median of REPEATS, after one that warms up."""
    seconds = []
    for _ in range(REPEATS + 1):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds[1:])


@ray.remote
class Engine:
    """Answers at once, as asynchronously as the host's rollout actor does."""

    async def update_weight(self, name: str, dtype: torch.dtype, shape: torch.Size, empty_cache: bool) -> None:
        """Nothing."""


def call_seconds() -> float:
    """CPU seconds of one of CALLS calls that are sent at once and then waited for."""
    engine = Engine.remote()
    weight = ("model.layers.0.mlp.up_proj.weight", torch.bfloat16, torch.Size((4096, 4096)), False)
    return median_seconds(lambda: ray.get([engine.update_weight.remote(*weight) for _ in range(CALLS)])) / CALLS


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=int, default=400, help="of the model: Qwen3-4B has 398")
    weights = parser.parse_args().weights
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    call = call_seconds()
    table = Table(
        "GPUs, one engine each", "MB a weight", "GB a sync", "pickling, s", "calls, s", title=f"{weights} weights"
    )
    for gpus in (8, 64, 256, 1024):
        sent = handles(gpus)
        size = len(ray.cloudpickle.dumps(sent))
        pickling = median_seconds(lambda sent=sent: ray.cloudpickle.dumps(sent))
        table.add_row(
            str(gpus), f"{size * gpus / 1e6:.2f}", f"{size * gpus * weights / 1e9:.1f}",
            f"{pickling * gpus * weights:.1f}", f"{call * gpus * weights:.1f}",
        )  # fmt: skip
    Console().print(f"a Ray call: {1000 * call:.2f} ms (median of {REPEATS})", table, "The table is computed.")


if __name__ == "__main__":
    main()
