"""`python -m restrain_openrlhf.hook.train_ppo_ray FLAGS`: OpenRLHF's train_ppo_ray with RESTRAIN on, and its flags.

Add `--restrain.config FILE`, a YAML file with `method:` and, where the method needs one, `reference:`.
"""

import argparse
import json
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

import ray

from restrain_openrlhf.config.gpu_layout import GpuLayout, rollout_batches
from restrain_openrlhf.config.host_flags import ENTRY_POINT, Flags, agent_path, parse, to_arguments
from restrain_openrlhf.config.this_machine import refuse_here, refuse_small_disk, with_limits
from restrain_openrlhf.config.yaml_file import HookConfig, load_hook_config
from restrain_openrlhf.errors import ConfigError, RestrainError
from restrain_openrlhf.hook.fixes.checkpoints import drop_unfinished
from restrain_openrlhf.hook.install.environment import VARIABLE, to_environment
from restrain_openrlhf.hook.install.instrument import SETUP_HOOK, install
from restrain_openrlhf.hook.launch.preflight import CHECKED, check_inputs
from restrain_openrlhf.machine.device import Device
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.machine.host_releases import check_version
from restrain_openrlhf.records.inputs import claim_checkpoints

# How many threads each process computes with: a user's own number comes before the device's.
THREADS = "OMP_NUM_THREADS"
# openrlhf/cli/train_ppo_ray.py sets these variables when it starts Ray itself.
HOST_ENVIRONMENT = {"TOKENIZERS_PARALLELISM": "true", "NCCL_DEBUG": "WARN", "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1"}


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line. One of our own errors ends it with its message."""
    try:
        check_version()
        ours, host_words = split_words(sys.argv[1:] if words is None else words)
        device, config = detect(), load_hook_config(ours.config)
        host_words = [
            *host_words,
            *missing_words(host_words, {**device.host_flags, "train.agent_func_path": str(agent_path())}),
        ]
        flags = vars(parse(host_words))
        if not ours.is_checked:
            refuse_here(config, flags)
            steps = rollout_batches(check_inputs(config, flags), flags)
            refuse_small_disk(flags, min(steps, config.steps or steps))
        run(with_limits(config, flags, device), flags, device, host_words)
    except RestrainError as error:
        sys.exit(f"error: {error}")


def split_words(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our part of the command line, and the host's words.

    Ours are `config`, a path, and `is_checked`: whether the process that started this one has checked the run.
    """
    parser = argparse.ArgumentParser(prog="python -m restrain_openrlhf.hook.train_ppo_ray", allow_abbrev=False)
    parser.add_argument("--restrain.config", dest="config", type=Path, required=True, help="YAML file with `method:`")
    parser.add_argument(CHECKED, dest="is_checked", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_known_args(list(words))


def run(config: HookConfig, flags: Flags, device: Device, host_words: Sequence[str]) -> None:
    """Start Ray with the hook in every worker, and run the host's program; `flags` are those of `host_words`.

    Everything must have been checked (`main`).
    """
    os.environ.update(to_environment(config))
    drop_unfinished(flags)
    claim_checkpoints(config, flags)
    device.install()
    install()
    start_ray(device, GpuLayout.of(flags))
    n = flags["rollout.n_samples_per_prompt"]
    print(f"RESTRAIN is on: the method {config.method.name}, votes of {n} rollouts a prompt", flush=True)
    sys.argv = [ENTRY_POINT, *host_words]
    runpy.run_module(ENTRY_POINT, run_name="__main__", alter_sys=True)


def missing_words(host_words: Sequence[str], flags: Flags) -> list[str]:
    """The words for flags that the command line sets neither by their name nor by the beginning of it."""
    given = tuple(word.split("=", 1)[0] for word in host_words if word.startswith("--") and len(word) > len("--"))
    is_given = {name: any(f"--{name}".startswith(word) for word in given) for name in flags}
    return to_arguments({name: value for name, value in flags.items() if not is_given[name]})


def start_ray(device: Device, layout: GpuLayout) -> None:
    """Join the cluster that RAY_ADDRESS names, or start one here. Every worker will be hooked.

    On a machine without GPUs, a cluster that is started here gets the logical GPUs that the layout needs.
    """
    environment = {**HOST_ENVIRONMENT, **device.environment}
    environment |= {name: os.environ[name] for name in (*HOST_ENVIRONMENT, VARIABLE, THREADS) if name in os.environ}
    os.environ.update(environment)
    # A submitted job has a runtime environment of its own. This makes Ray add ours to it instead of refusing ours.
    _refuse_other_setup(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR") or "{}")
    os.environ.setdefault("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")
    runtime_env = {"env_vars": environment, "worker_process_setup_hook": SETUP_HOOK}
    if os.environ.get("RAY_ADDRESS") or device.has_gpus:
        ray.init(runtime_env=runtime_env)
    else:
        # One CPU for each GPU bundle, and one for each of the host's controllers.
        gpus = layout.needed
        ray.init("local", runtime_env=runtime_env, num_gpus=gpus, num_cpus=gpus + 4, include_dashboard=False)
    layout.refuse_shortage(ray.cluster_resources().get("GPU", 0))


def _refuse_other_setup(job: str) -> None:
    """Raises ConfigError if a submitted job has its own set-up function, which ours would silently replace."""
    other = json.loads(job).get("runtime_env", {}).get("worker_process_setup_hook", SETUP_HOOK)
    if other != SETUP_HOOK:
        raise ConfigError(
            f"The job's runtime environment has worker_process_setup_hook: {other}. RESTRAIN needs that place for its "
            "own function in every worker. Leave it out of the submitted job."
        )


if __name__ == "__main__":
    main()
