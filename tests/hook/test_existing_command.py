"""What a deployment that runs `python -m openrlhf.cli.train_ppo_ray FLAGS` changes: one module and one flag."""

import json
import os
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack (make install)")

from restrain_openrlhf.config import this_machine
from restrain_openrlhf.config.host_flags import agent_path, parse
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from restrain_openrlhf.hook import train_ppo_ray
from restrain_openrlhf.hook.install import instrument
from restrain_openrlhf.hook.install.environment import VARIABLE
from restrain_openrlhf.hook.install.instrument import SETUP_HOOK
from restrain_openrlhf.hook.launch.preflight import CHECKED, RunInputs
from restrain_openrlhf.machine.patching import expect_no_more


@pytest.fixture
def command(tmp_path, monkeypatch):
    """A command of the host's with our flag; Ray and the host's entry point are noted instead of started."""
    (tmp_path / "prompts.jsonl").write_text('{"problem": "1+1="}\n{"problem": "2+2="}\n')
    (tmp_path / "method.yaml").write_text(f"method: {{name: ttrl}}\nmetrics: {tmp_path / 'metrics.jsonl'}\n")
    flags = {
        "actor.model_name_or_path": ADDITION.model,
        "data.prompt_dataset": tmp_path / "prompts.jsonl",
        "data.input_key": "problem",
        "algo.advantage.estimator": "group_norm",
        "algo.kl.init_coef": 0,
        "rollout.n_samples_per_prompt": 8,
        "vllm.num_engines": 4,
    }
    words = [str(word) for name, value in flags.items() for word in (f"--{name}", value)]
    monkeypatch.setattr(sys, "argv", ["train_ppo_ray"])
    before = dict(os.environ)
    yield ["--restrain.config", str(tmp_path / "method.yaml"), *words]
    expect_no_more(instrument.CONTRACT)
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def started(monkeypatch):
    """What Ray and the host are started with, in order."""
    noted = []
    monkeypatch.setattr(train_ppo_ray.ray, "init", lambda *_, **kwargs: noted.append(kwargs))
    monkeypatch.setattr(train_ppo_ray.ray, "cluster_resources", lambda: {"GPU": 64})
    monkeypatch.setattr(train_ppo_ray.runpy, "run_module", lambda name, **_: noted.append([name, *sys.argv]))
    return noted


def test_the_hosts_own_program_runs_with_its_own_flags_and_every_worker_hooked(command, started, tmp_path, capsys):
    train_ppo_ray.main(command)
    assert "RESTRAIN is on: the method ttrl, votes of 8 rollouts a prompt\n" in capsys.readouterr().out
    cluster, (module, program, *words) = started
    assert module == program == "openrlhf.cli.train_ppo_ray"
    assert words[: len(command) - 2] == command[2:], "the flags reach the host as they were given"
    assert vars(parse(words))["train.agent_func_path"] == str(agent_path())
    assert instrument.is_active()
    runtime = cluster["runtime_env"]
    assert runtime["worker_process_setup_hook"] == SETUP_HOOK
    settings = HookConfig.model_validate_json(runtime["env_vars"][VARIABLE])
    assert (settings.method.name, settings.metrics) == ("ttrl", tmp_path / "metrics.jsonl")


def test_the_agent_may_be_named_and_a_reward_of_the_commands_own_is_refused(command, started, capsys):
    train_ppo_ray.main([*command, f"--train.agent_func_path={agent_path()}"])
    assert vars(parse(started[-1][2:]))["train.agent_func_path"] == str(agent_path())
    with pytest.raises(SystemExit, match=r"OpenRLHF would never call that address\. Remove it"):
        train_ppo_ray.main([*command, "--reward.remote_url=http://reward:8000/get_reward"])
    # argparse takes the beginning of a name, and of a flag that is given twice the last.
    with pytest.raises(SystemExit, match=r"train\.agent_func_path is 'theirs\.py', which is not this project's agent"):
        train_ppo_ray.main([*command, "--train.agent_func=theirs.py"])


def test_a_submitted_jobs_own_set_up_function_is_not_replaced_silently(command, started, monkeypatch):
    runtime_env = {"working_dir": "/theirs", "env_vars": {"A": "b"}}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps({"runtime_env": runtime_env}))
    train_ppo_ray.main(command)
    assert len(started) == 2
    runtime_env["worker_process_setup_hook"] = "theirs.setup"
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps({"runtime_env": runtime_env}))
    with pytest.raises(SystemExit, match=r"has worker_process_setup_hook: theirs\.setup\. RESTRAIN"):
        train_ppo_ray.main(command)
    assert len(started) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--algo.advantage.estimator", "rloo"], "algo.advantage.estimator is 'rloo'"),
        (["--actor.model_name_or_path", "/no/such/model"], "/no/such/model"),
        (["--data.input_key", "question"], "question"),
        (
            ["--data.max_len", "8", "--rollout.max_new_tokens", "5"],
            "2 of 2 prompts are too long: max_len 8 with 5 new tokens leaves 3",
        ),
        (["--data.max_len", "4"], "to 5 or more, lower max_new_tokens"),
        (["--rollout.vllm_generate_batch_size", "256"], "is 256 and rollout.batch_size is 1024"),
        (["--train.enable_ema", "--ckpt.load_enable"], "checkpoints do not contain the moving average"),
        (["--algo.kl.target", "0.1"], "algo.kl.target is 0.1"),
        (["--critic.freezing_steps", "3"], "critic.freezing_steps is 3"),
        (["--ds.ring_attn_size", "2"], "ds.ring_attn_size is 2"),
        (["--no.such.flag", "1"], "OpenRLHF's command line refuses"),
        (["--actor.num_gpus_per_node", "128"], "GPUs, but the Ray cluster has 64"),
    ],
)
def test_what_cannot_train_is_refused_in_one_line_before_the_host_starts(command, started, words, message):
    with pytest.raises(SystemExit) as stopped:
        train_ppo_ray.main([*command, *words])
    assert stopped.value.code.startswith("error: ")
    assert message in stopped.value.code
    assert "\n" not in stopped.value.code
    assert not any(isinstance(each, list) for each in started)


def test_a_disk_without_room_is_refused_before_the_host_starts(command, started, monkeypatch):
    monkeypatch.setattr(this_machine, "disk_usage", lambda _path: SimpleNamespace(free=0))
    with pytest.raises(SystemExit, match=r"checkpoints_ppo_ray: 0.0 GiB are free"):
        train_ppo_ray.main(command)
    assert not started


def test_a_run_counts_its_prompts_as_it_is_checked_and_is_not_checked_again_by_the_process_it_starts(
    command, started, monkeypatch
):
    counted, check = [], RunInputs.check
    monkeypatch.setattr(RunInputs, "check", lambda inputs: counted.append(check(inputs)) or counted[-1])
    train_ppo_ray.main(command)
    train_ppo_ray.main([*command, CHECKED])
    assert counted == [2]
    first, second = (each for each in started if isinstance(each, list))
    assert first == second, "the host would not know the word"
