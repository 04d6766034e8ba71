"""Real runs of OpenRLHF's own trainer with the agent's file alone."""

import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.e2e.conftest import SMALL, Job, run, skip_without, with_this_checkout

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]
TWO_STEPS = "openrlhf.data.max_samples=16"
N = SMALL["rollout.n_samples_per_prompt"]

# OpenRLHF's own trainer with the CPU's stand-ins and nothing of ours else.
UNMODIFIED = """
import os, runpy, sys
import ray
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.hook.train_ppo_ray import HOST_ENVIRONMENT
device = detect()
device.install()
environment = {**HOST_ENVIRONMENT, **device.environment}
os.environ.update(environment)
setup = {"env_vars": environment, "worker_process_setup_hook": "tests.e2e.test_training.cpu_only"}
gpus = None if device.has_gpus else 3
ray.init("local", runtime_env=setup, num_gpus=gpus, num_cpus=7, include_dashboard=False)
sys.argv[0] = "openrlhf.cli.train_ppo_ray"
runpy.run_module("openrlhf.cli.train_ppo_ray", run_name="__main__", alter_sys=True)
"""


def unmodified(job: Job, method: str, **flags: object) -> subprocess.CompletedProcess[str]:
    """OpenRLHF as it is, on the demo's flags, with the agent's file and one estimator that keeps the net advantage."""
    from restrain_openrlhf.config.command_line import parse_overrides
    from restrain_openrlhf.config.host_flags import agent_path, host_flags, record, to_arguments
    from restrain_openrlhf.config.this_machine import on_this_machine
    from restrain_openrlhf.config.yaml_file import load_run_config
    from restrain_openrlhf.machine.devices import detect
    from restrain_openrlhf.machine.host_releases import installed

    estimator = {"algo.advantage.estimator": "flash_reinforce"}
    if "flash_reinforce" not in record(installed())["algo.advantage.estimator"]["choices"]:
        estimator = {"algo.advantage.estimator": "reinforce", "algo.advantage.no_std_norm": True}
    sets = job.sets("reference=", TWO_STEPS)[1::2]
    config = on_this_machine(load_run_config(ROOT / "configs" / "cpu" / "demo_addition.yaml", parse_overrides(sets)))
    words = to_arguments(
        {
            **detect().host_flags,
            **host_flags(config),
            **estimator,
            "train.agent_func_path": agent_path(),
            **flags,
        }
    )
    (job.folder / "restrain.yaml").write_text(f"method: {method}\n")
    environment = with_this_checkout() | {"RESTRAIN_CONFIG": str(job.folder / "restrain.yaml")}
    return run([sys.executable, "-c", UNMODIFIED, *words], env=environment)


def logged(output: str, name: str) -> list[float]:
    """A number of each step, as OpenRLHF logs it."""
    return [float(value) for value in re.findall(rf"lobal step \d+: .*'{name}': ([-\d.e]+)", output)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "flags", "voters"),
    [
        ("{name: ttrl, votes: 12, train_on: 8}", {}, 12),
        (
            "{name: restrain, kappa: 2, prompt_weight: online}",
            {"train.async_enable": True, "algo.advantage.is_correction_level": "token"},
            N,
        ),
    ],
)
def test_unmodified_openrlhf_trains_with_the_agents_file_alone(job, method, flags, voters):
    skip_without(3 if flags else 1)
    done = unmodified(job, method, **flags)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-5000:]
    assert logged(output, "restrain/voters") == [voters] * 2
    assert all(value > 0 for value in logged(output, "restrain/advantage_pos"))
    assert all(value < 0 for value in logged(output, "restrain/advantage_neg"))
    assert (job.run_dir / "model" / "config.json").exists()
    assert "RESTRAIN hook" not in output
