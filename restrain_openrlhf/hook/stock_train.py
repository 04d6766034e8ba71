"""OpenRLHF's own train_ppo_ray without the hook, on the device that is there: what a hooked run's time is held against.

`python -m restrain_openrlhf.hook.stock_train FLAGS`, with OpenRLHF's flags. Nothing of RESTRAIN is trained.
"""

import os
import runpy
import sys
from collections.abc import Sequence

import ray

from restrain_openrlhf.hook import contract
from restrain_openrlhf.hook.devices import detect
from restrain_openrlhf.hook.host_flags import parse
from restrain_openrlhf.hook.sizes import gpus_needed
from restrain_openrlhf.hook.train_ppo_ray import HOST_ENVIRONMENT

SETUP = "restrain_openrlhf.hook.stock_train.setup"


def setup() -> None:
    """In each Ray worker: the accelerator alone is prepared."""
    detect().install()


def main(words: Sequence[str]) -> None:
    """Start Ray as a hooked run does, and hand over to the host."""
    device = detect()
    gpus = gpus_needed(vars(parse(words)))
    device.install()
    environment = {**HOST_ENVIRONMENT, **device.environment}
    os.environ.update(environment)
    runtime_env = {"env_vars": environment, "worker_process_setup_hook": SETUP}
    if device.has_gpus:
        ray.init(runtime_env=runtime_env)
    else:
        ray.init("local", runtime_env=runtime_env, num_gpus=gpus, num_cpus=gpus + 4, include_dashboard=False)
    sys.argv = [contract.ENTRY_POINT, *words]
    runpy.run_module(contract.ENTRY_POINT, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
