"""OpenRLHF's own train_ppo_ray without the hook, on the device that is there: what a hooked run's time is held against.

`python -m restrain_openrlhf.commands.gpu_check.stock_run FLAGS`, with OpenRLHF's flags, one of which names this file
as the reward (reward.remote_url). Nothing of RESTRAIN is trained.
"""

import os
import runpy
import sys
from collections.abc import Sequence
from typing import Any

import ray

from restrain_openrlhf.config.gpu_layout import GpuLayout
from restrain_openrlhf.config.host_flags import ENTRY_POINT, parse
from restrain_openrlhf.hook.train_ppo_ray import HOST_ENVIRONMENT
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.machine.host_releases import check_version

SETUP = "restrain_openrlhf.commands.gpu_check.stock_run.setup"


def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[str]) -> dict[str, Any]:
    """Rewards (B,) of texts, each a prompt with its response: whether it has the answer."""
    import torch  # noqa: PLC0415 - where the host calls it, the device is prepared

    del prompts
    boxed = [f"\\boxed{{{label}}}" for label in labels]
    rewards = torch.tensor([float(answer in text) for text, answer in zip(queries, boxed, strict=True)])
    return {"rewards": rewards, "scores": rewards}


def setup() -> None:
    """In each Ray worker: the accelerator alone is prepared."""
    detect().install()


def main(words: Sequence[str]) -> None:
    """Start Ray as a hooked run does, and hand over to the host."""
    device = detect()
    check_version()
    gpus = GpuLayout.of(vars(parse(words))).needed
    device.install()
    environment = {**HOST_ENVIRONMENT, **device.environment}
    os.environ.update(environment)
    runtime_env = {"env_vars": environment, "worker_process_setup_hook": SETUP}
    if device.has_gpus:
        ray.init(runtime_env=runtime_env)
    else:
        ray.init("local", runtime_env=runtime_env, num_gpus=gpus, num_cpus=gpus + 4, include_dashboard=False)
    sys.argv = [ENTRY_POINT, *words]
    runpy.run_module(ENTRY_POINT, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
