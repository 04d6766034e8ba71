"""`restrain integrate`: the changed command is read by the shell itself, and asked of the gate that a run passes."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from restrain_openrlhf.commands.integrate.changes import CommandReview
from restrain_openrlhf.commands.integrate.script import Written
from restrain_openrlhf.config.checks import CHECKS, refusals, refuse_settings
from restrain_openrlhf.config.host_flags import parse
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.method import build, parse_settings
from tests.command_line import refused, restrain
from tests.config.test_flags import CONTRADICTED, flags_with
from tests.processes import program

OURS = HookConfig(method=parse_settings({"name": "restrain"}), reference=Path("/shared/ref.jsonl"))
SCRIPT = r"""#!/bin/bash
#SBATCH --nodes=1
# python -m openrlhf.cli.train_ppo_ray is what this starts
MODEL="some model/7b"   # with a space
set -x
CUDA_VISIBLE_DEVICES=0 ray job submit --address="http://127.0.0.1:8265" \
   --runtime-env-json='{"working_dir": "/openrlhf"}' \
   -- python3 -m openrlhf.cli.train_ppo_ray \
   --actor.model_name_or_path "$MODEL" \
   --data.prompt_dataset 'my prompts.jsonl' \
   --reward.remote_url http://reward:5000/get_reward \
   --vllm.num_engines 4 \
   --vllm.tensor_parallel_size 2 \
   --train.colocate_all \
   --rollout.max_new_tokens=1024 \
   --rollout.n_samples_per_prompt 16 \
   --reward.clip_range -0.5 0.5 \
   --actor.adam.betas 0.9 0.95 \
   --algo.advantage.estimator=reinforce_baseline \
   --algo.dynamic_filtering_enable 2>&1 | tee train.log
echo done
"""


def changed(written, config=OURS):
    return CommandReview.of(written, config).changed(written, "method.yaml")


def argv(script, folder):
    """The words that a shell hands to the program, behind its name."""
    stand_in = program(folder, "stand_in", 'for word; do printf "%s\\0" "$word" >> "$OUT"; done')
    for name in ("ray", "python", "python3"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(stand_in)
    out = folder / "out"
    out.unlink(missing_ok=True)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "OUT": str(out)}
    subprocess.run(["bash", "-c", script], check=True, env=environment, cwd=folder, capture_output=True)
    words = out.read_text().split("\0")[:-1]
    place = next(number for number, word in enumerate(words) if word.endswith(".train_ppo_ray"))
    return words[place], words[place + 1 :]


def refuse_words(words, config=OURS):
    """What a run is refused for. The first two words are ours."""
    assert words[:2] == ["--restrain.config", "method.yaml"]
    refuse_settings(config, vars(parse(words[2:])))


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT)
    return path


def test_a_script_becomes_one_that_the_gate_takes_and_the_shell_reads_alike(script, tmp_path):
    before, after = argv(SCRIPT, tmp_path), argv(changed(Written.of_file(script)), tmp_path)
    assert (before[0], after[0]) == ("openrlhf.cli.train_ppo_ray", "restrain_openrlhf.hook.train_ppo_ray")
    refuse_words(after[1])
    flags, old = (vars(parse(words)) for words in (after[1][2:], before[1]))
    assert {name: (old[name], flags[name]) for name in flags if flags[name] != old[name]} == {
        "algo.advantage.estimator": ("reinforce_baseline", "group_norm"),
        "algo.kl.use_loss": (False, True),
        "algo.dynamic_filtering_enable": (True, False),
        "reward.remote_url": ("http://reward:5000/get_reward", None),
        "reward.clip_range": ([-0.5, 0.5], [-10, 10]),
    }
    assert flags["actor.model_name_or_path"] == "some model/7b"


def test_a_value_in_a_word_of_its_own_is_replaced_once():
    asked = SCRIPT.replace("estimator=reinforce_baseline", "estimator reinforce_baseline")
    after = changed(Written.of_command(asked))
    assert (after.count("--algo.advantage.estimator"), "reinforce_baseline" in after) == (1, False)


def test_only_what_changes_is_in_the_diff(script):
    done = restrain("integrate", "--file", script)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("-   ")] == [
        "-   -- python3 -m openrlhf.cli.train_ppo_ray \\",
        "-   --reward.remote_url http://reward:5000/get_reward \\",
        "-   --reward.clip_range -0.5 0.5 \\",
        "-   --algo.advantage.estimator=reinforce_baseline \\",
        "-   --algo.dynamic_filtering_enable 2>&1 | tee train.log",
    ]
    assert script.read_text() == SCRIPT
    assert sorted(path.name for path in script.parent.iterdir()) == ["train.sh"]


def test_the_reference_step_draws_as_the_command_trains(script):
    step = restrain("integrate", "--file", script).stdout.split("restrain reference")[1].split("\n==")[0]
    for word in ("'--model=some model/7b'", "'--prompts=my prompts.jsonl'", "--n=16", "--max-new-tokens=1024"):
        assert word in step
    assert "restrain reference" not in restrain("integrate", "--file", script, "--method", "ttrl").stdout


def test_an_agent_of_ones_own_keeps_drawing(tmp_path):
    """In the file that is printed and in the pass of the frozen model; a file that leaves it out is said."""
    words = f"{GOOD} --rollout.max_new_tokens 64 --train.agent_func_path=tools/my_agent.py"
    command = ("integrate", "--command", f"python -m openrlhf.cli.train_ppo_ray {words}")
    done = restrain(*command)
    assert done.returncode == 0
    printed = yaml.safe_load(done.stdout.split("seen by every node\n")[1].split("\n\n")[0])
    assert printed["agent"] == "tools/my_agent.py"
    assert f"--agent={Path('tools/my_agent.py').absolute()}" in done.stdout
    own = tmp_path / "mine.yaml"
    own.write_text("method: {name: restrain}\nreference: /shared/ref.jsonl\nagent: {path: /x/agent.py, turns: all}\n")
    done = restrain(*command, "--config", own)
    assert (done.returncode, "'--agent={path: /x/agent.py, turns: all}'" in done.stdout) == (0, True)
    own.write_text("method: {name: ttrl}\n")
    done = restrain(*command, "--config", own)
    assert done.returncode == 1
    assert "Write `agent: tools/my_agent.py` into" in done.stdout


def test_a_changed_command_needs_no_change(script, tmp_path):
    script.write_text(changed(Written.of_file(script)))
    done = restrain("integrate", "--file", script)
    assert done.returncode == 0
    assert "Nothing: the command already has RESTRAIN." in done.stdout
    assert "None." in done.stdout


def test_a_hooked_command_is_asked_with_its_own_method(script, tmp_path):
    (tmp_path / "mine.yaml").write_text("method: {name: ttrl, votes: 64, train_on: 32}\n")
    hooked = changed(Written.of_file(script)).replace("method.yaml", str(tmp_path / "mine.yaml"))
    script.write_text(hooked)
    done = restrain("integrate", "--file", script)
    assert "draws 64 rollouts of a prompt and trains on 32" in done.stdout
    assert "=> --rollout.n_samples_per_prompt 32" in done.stdout


# Scripts as other people write them.
ODD = {
    "escaped quotes before the program, as in OpenRLHF's own script for Slurm": r"""
bash -c "ray job submit --runtime-env-json='{\"working_dir\": \"/x\"}' \
    -- python3 -m openrlhf.cli.train_ppo_ray FLAGS \
    --algo.advantage.estimator rloo" """,
    "variables that are set once, and other things around": r"""
nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))   # don't
worker_num=$((SLURM_JOB_NUM_NODES - 1)) N=$(( 1 + (2 * 3) << 1 ))
echo "$(echo "$(hostname)") it's (here"
cat > notes <<'EOF'
don't ( read " this
EOF
for ((i = 1; i <= worker_num; i++)); do srun -w "${nodes[$i]}" ray start; done
export EST="rloo"   # it's the baseline
echo "python -m openrlhf.cli.train_ppo_ray"; RATE='x y'
python3 -m openrlhf.cli.train_ppo_ray FLAGS --algo.advantage.estimator ${EST} """,
}


@pytest.mark.parametrize("name", ODD)
def test_odd_scripts_change_as_bash_reads_them(name, tmp_path):
    script = ODD[name].replace("FLAGS", GOOD)
    before, (program, after) = argv(script, tmp_path)[1], argv(changed(Written.of_command(script)), tmp_path)
    assert program == "restrain_openrlhf.hook.train_ppo_ray"
    refuse_words(after)
    old, new = (vars(parse(words)) for words in (before, after[2:]))
    assert {flag: (old[flag], new[flag]) for flag in new if new[flag] != old[flag]} == {
        "algo.advantage.estimator": ("rloo", "group_norm")
    }


BARE = "python -m openrlhf.cli.train_ppo_ray --train.colocate_all --algo.kl.use_loss --algo.advantage.estimator"


def test_a_value_that_only_the_shell_knows_is_neither_missing_nor_changed():
    flags = '--actor.model_name_or_path "$1" --data.prompt_dataset ~/p.jsonl --vllm.num_engines $E'
    done = restrain(
        "integrate",
        "--command",
        f"{BARE} $EST {flags} --rollout.n_samples_per_prompt $N --data.max_len 9 --rollout.max_new_tokens ${{TOKENS}}",
    )
    assert done.returncode == 0, done.stdout
    assert "None." in done.stdout
    assert "+    --rollout.n" not in done.stdout
    for word in ('--n="$N"', '--model="$1"', '--prompts="$HOME/p.jsonl"', '--max-new-tokens="${TOKENS}"'):
        assert word in done.stdout


@pytest.mark.parametrize(
    "assigned",
    [
        'if [ "$1" ]; then A=x; else A=y; fi',
        "A=x\nfor A in 1 2; do true; done",
        "A=x\n[ $1 ] &&\n  A+=y",
        "A=x\nread -r A",
        "A=$(date)",
    ],
)
def test_a_variable_that_is_set_twice_or_by_a_command_is_not_checked(assigned):
    done = restrain(
        "integrate", "--command", f"{assigned}\npython -m openrlhf.cli.train_ppo_ray {GOOD} --train.seed $A"
    )
    assert done.returncode == 0, done.stdout
    assert "only your shell knows the value\n--train.seed $A\n\n" in done.stdout
    done = restrain("integrate", "--command", f"A=x\npython -m openrlhf.cli.train_ppo_ray {GOOD} --train.seed $A")
    assert "invalid int value: 'x'" in done.stdout


GOOD = (
    "--actor.model_name_or_path m --data.prompt_dataset p --vllm.num_engines 8 --train.colocate_all "
    "--algo.advantage.estimator group_norm --algo.kl.use_loss --rollout.n_samples_per_prompt 16"
)


@pytest.mark.parametrize(
    "command",
    [
        f"python -m openrlhf.cli.train_ppo_ray {GOOD}",
        f"srun bash -c 'cd /x && exec python -m openrlhf.cli.train_ppo_ray {GOOD}'",
        f'bash -lc "python -m openrlhf.cli.train_ppo_ray {GOOD}"',
        f"A=1 B='x y' nohup python -u -m openrlhf.cli.train_ppo_ray {GOOD} > log 2>&1 &",
        f"python -m openrlhf.cli.train_ppo_ray {GOOD} --train.agent_func_path $(restrain agent-path)",
    ],
)
def test_ways_to_write_a_good_command(command):
    done = restrain("integrate", "--command", command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "+" in done.stdout
    assert "restrain_openrlhf.hook.train_ppo_ray" in done.stdout
    assert "None." in done.stdout


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--actor.adam.lr fast", "invalid float value: 'fast'"),
        ("--rollout.batchsize 3", "Did you mean 'rollout.batch_size'?"),
        ("--train.colocate_all true", "'true' belongs to no flag"),
        ('"${ARGS[@]}"', "'${ARGS[@]}' belongs to no flag. Write flags that are in a variable into the command."),
        ("--algo.advantage.est group_norm", "Did you mean 'algo.advantage.estimator'?"),
        ("--train.async_enable --train.partial_rollout_enable --vllm.enable_sleep", "Remove one of"),
        ("--train.batch_size 100", "no multiple of the policy's 8 ranks"),
    ],
)
def test_what_only_the_user_can_decide_is_said_so_and_ends_with_status_1(flags, said):
    done = restrain("integrate", "--command", f"python -m openrlhf.cli.train_ppo_ray {GOOD} {flags}")
    assert done.returncode == 1
    assert said in done.stdout
    assert "=> for you to decide" in done.stdout


def test_flags_in_a_variable_are_neither_missed_nor_set_again():
    command = (
        'python -m openrlhf.cli.train_ppo_ray --data.prompt_dataset p.jsonl --reward.normalize_enable "${ARGS[@]}"'
    )
    done = restrain("integrate", "--command", command)
    assert done.returncode == 1
    assert "rollout.n_samples_per_prompt" not in done.stdout, "the variable may set it, and the last value counts"
    assert "reward.normalize_enable" in done.stdout, "what is written out is reviewed"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("", "no command with `-m openrlhf.cli.train_ppo_ray`"),
        ("python train.py", "no command with"),
        ("deepspeed --module openrlhf.cli.train_ppo_ray", "Line 1 names it, but not in a command that can be read"),
        ("python -m openrlhf.cli.train_ppo_ray --a 'b", "Line 1 names it, but not in a command that can be read"),
        (
            "python -m openrlhf.cli.train_ppo_ray \\\n --x 1 \\\n # a note \\\n --y 1",
            "--command, line 4: begins with a flag. End the line above with a backslash",
        ),
        ("python -m openrlhf.cli.train_ppo_ray \\ \n --x 1", "line 2: begins with a flag."),
        ("python -m openrlhf.cli.train_ppo_ray\npython -m openrlhf.cli.train_ppo_ray", "in lines 1 and 2. Give one"),
        ("OUT=$(python -m openrlhf.cli.train_ppo_ray)", "Line 1 names it, but not in a command that can be read"),
        ("cat <<EOF\npython -m openrlhf.cli.train_ppo_ray\nEOF\n", "Line 2 names it, but not in a command"),
        (r'A= && bash -c "python -m openrlhf.cli.train_ppo_ray --a \"b\""', "Line 1 names it, but not in a command"),
    ],
)
def test_what_is_no_command_is_one_line(command, said):
    message = refused("integrate", "--command", command)
    assert said in " ".join(message.split())


def test_wrong_files_and_options(tmp_path):
    (tmp_path / "binary.sh").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "mine.yaml").write_text("method: {name: ttrl}\n")
    good = ("--command", f"python -m openrlhf.cli.train_ppo_ray {GOOD}")
    for words, said in (
        (("--file", tmp_path / "absent.sh"), "no such text file"),
        (("--file", tmp_path / "mine.yaml"), "is no script. Give the entry point of the RayJob with --command"),
        (("--file", tmp_path / "binary.sh"), "no such text file"),
        ((), "Give either --command"),
        (("--command", "x", "--file", "y"), "not both"),
        ((*good, "--method", "restrian"), "Did you mean 'restrain'"),
        ((*good, "--config", tmp_path / "mine.yaml", "--method", "ttrl"), "already sets the method"),
    ):
        assert said in " ".join(refused("integrate", *words).split())


@pytest.mark.parametrize(("flags", "message"), CONTRADICTED, ids=range(len(CONTRADICTED)))
def test_a_change_is_one_that_the_gate_takes(flags, message):
    """Of each flag that is refused: a change under which it is not, or none where the reason leaves a choice."""
    config = HookConfig(method=parse_settings({"name": "ttrl"}))
    named = {
        "actor.model_name_or_path": "m",
        "data.prompt_dataset": "p",
        "vllm.num_engines": 8,
        "rollout.n_samples_per_prompt": 16,
    }
    values = flags_with({**named, **flags})
    first, *_ = found = refusals(CHECKS, config, values, build(config.method))
    assert message in first.reason
    if first.change:
        refuse_settings(config, {**values, **{name: value for each in found for name, value in each.change.items()}})
    else:
        assert "one of" in first.reason or "Install it" in first.reason
