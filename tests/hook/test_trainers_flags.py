"""The agent under OpenRLHF's own trainer: flags that would lose its rewards are read from Ray and refused."""

import subprocess
import sys

import pytest

pytest.importorskip("ray", reason="needs the training stack: make install")

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.hook.install.environment import refuse_lost_rewards

MODULE = "/usr/bin/python3 -u -m openrlhf.cli.train_ppo_ray"
FLASH = "--algo.advantage.estimator flash_reinforce"
# A job of Ray's own, whose actor asks for the command of the program that started it.
DRIVER = """
import ray
ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
@ray.remote(num_cpus=0)
class Actor:
    def command(self):
        from restrain_openrlhf.hook.install.environment import trainers_command
        return trainers_command()
print(ray.get(Actor.remote().command.remote()))
"""


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("", "estimator is 'gae'"),
        ("--algo.advantage.estimator=rloo", "estimator is 'rloo'"),
        ("--algo.advantage.est group_norm", "estimator is 'group_norm'"),
        ("--algo.advantage.estimator reinforce", "estimator is 'reinforce'"),
        (f"{FLASH} --algo.dynamic_filtering_enable", "algo.dynamic_filtering_enable drops groups"),
        (f"{FLASH} --eval.dataset held.jsonl", "eval.dataset is set: its rows would vote"),
        (f"{FLASH} --train.async_enable", "train.async_enable is set without algo.advantage.is_correction_level"),
        (f'{FLASH} --ckpt.path "my folder" --algo.advantage.estimator dr_grpo', "estimator is 'dr_grpo'"),
    ],
)
def test_flags_that_would_lose_the_rewards_are_refused(flags, said):
    with pytest.raises(ConfigError, match=said):
        refuse_lost_rewards(f"{MODULE} {flags}")


@pytest.mark.parametrize(
    "command",
    [
        f"{MODULE} {FLASH}",
        f"{MODULE} {FLASH} --train.async_enable --algo.advantage.is_correction_level token",
        f"{MODULE} --algo.advantage.estimator reinforce --algo.advantage.no_std_norm",
        # Names of before 0.10.2, a program of the user's own, a shell's quote that Ray has not closed, and no Ray.
        f"{MODULE} --advantage_estimator rloo",
        "python launch.py --algo.advantage.estimator rloo",
        f"{MODULE} --ckpt.path it's",
        "",
    ],
)
def test_other_commands_are_taken(command):
    refuse_lost_rewards(command)


@pytest.mark.long
def test_ray_knows_the_trainers_command():
    words = ["openrlhf.cli.train_ppo_ray", "--algo.advantage.estimator", "rloo", "--ckpt.path", "my folder"]
    done = subprocess.run([sys.executable, "-c", DRIVER, *words], capture_output=True, text=True, check=True)
    assert done.stdout.endswith('openrlhf.cli.train_ppo_ray --algo.advantage.estimator rloo --ckpt.path "my folder"\n')
    with pytest.raises(ConfigError, match="estimator is 'rloo'"):
        refuse_lost_rewards(done.stdout)
