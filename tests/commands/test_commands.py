"""What a user types, and what bad input gets: one line that says what is wrong, and exit status 2."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import typer
import yaml
from typer.main import get_command

import test_time.cli as test_time_cli
from restrain_openrlhf.commands import main
from restrain_openrlhf.config.yaml_file import RunConfig
from tests.command_line import call, refused, restrain
from tests.conftest import ROOT


@pytest.mark.parametrize("words", [(), ("score",), ("k8s", "render"), ("data", "prepare"), ("gpu-check",)])
def test_h_is_help(words):
    assert restrain(*words, "-h").stdout == restrain(*words, "--help").stdout != ""
    assert "Usage: " in restrain(*words, "-h").stdout


def test_version_is_the_distributions():
    assert restrain("--version").stdout == f"restrain-openrlhf {version('restrain-openrlhf')}\n"


@pytest.mark.parametrize("script", ["restrain", "test-time"])
def test_a_shell_completes_the_commands(script):
    """As bash asks: the words so far, and which of them is being typed."""
    variable = f"_{script.upper().replace('-', '_')}_COMPLETE"
    asked = {**os.environ, variable: "complete_bash", "COMP_WORDS": f"{script} ", "COMP_CWORD": "1"}
    done = subprocess.run(
        [Path(sys.executable).with_name(script)], env=asked, capture_output=True, text=True, check=False
    )
    assert {"restrain": "gpu-check", "test-time": "adapt"}[script] in done.stdout.split()


def test_agent_path_prints_the_file_for_openrlhf():
    done = restrain("agent-path")
    path = Path(done.stdout.strip())
    assert (path.name, path.is_file()) == ("agent.py", True)
    assert "class AgentExecutor" in path.read_text()


def test_agent_path_checks_an_agent_that_is_wrapped_and_says_which_line_names_it(tmp_path):
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    theirs, wrong = ROOT / "examples" / "calculator_agent.py", tmp_path / "wrong.py"
    done = restrain("agent-path", "--wrap", theirs)
    assert Path(done.stdout.strip()).name == "agent.py"
    assert f"agent: {theirs}" in done.stderr
    wrong.write_text("import torch\n")
    assert "has no class AgentExecutor" in refused("agent-path", "--wrap", wrong)
    assert "absent.py cannot be read" in refused("agent-path", "--wrap", tmp_path / "absent.py")


def test_show_prints_every_setting_and_what_the_prompts_ask_for(tmp_path, write_jsonl):
    agent, prompts = tmp_path / "agent.py", write_jsonl("p.jsonl", [{"problem": "1+1="}])
    given = {"answers.name": "text", "answers.read": "tag", "steps": 7, "evaluate_first": "true", "agent.turns": "all"}
    flags = {"eval.dataset": "x.jsonl", "eval.steps": 1, "data.prompt_dataset": prompts}
    named = {**given, "agent.path": agent, **{f"openrlhf.{name}": value for name, value in flags.items()}}
    words = [word for key, value in named.items() for word in ("--set", f"{key}={value}")]
    done = restrain("show", "cpu/demo", *words, "--set", "openrlhf.data.label_key=answer")
    assert done.returncode == 0, done.stderr
    shown = yaml.safe_load(done.stdout.partition("\n\n")[0])
    assert shown.keys() == RunConfig.model_fields.keys() - {"openrlhf"}
    assert (shown["answers"]["read"], shown["steps"], shown["evaluate_first"]) == ("tag", 7, True)
    assert (shown["agent"]["path"], shown["agent"]["turns"]) == (str(agent), "all")
    assert (shown["seeded_rollouts"], shown["rollouts"]["keep"]) == (True, "all")
    assert "the prompts ask for" not in done.stderr, "an agent may add to them"
    without = restrain("show", "cpu/demo", *words[:10], *words[12:], "--set", "agent=null")
    assert "note: the prompts ask for neither a box" in without.stderr


@pytest.mark.parametrize("command", ["show", "train"])
def test_a_key_among_the_flags_is_refused_and_not_repeated(command):
    """The list of processes would show it, and the output of `show` is asked for in issues."""
    said = refused(command, "cpu/demo", "--set", "openrlhf.logger.wandb.key=0123456789abcdef")
    assert "Set it to 'dummy' and put the key into the environment, as WANDB_API_KEY" in said
    assert "0123456789abcdef" not in said


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("openrlhf.actor.adam.lrr=1", "Did you mean 'openrlhf.actor.adam.lr'"),
        ("openrlhf.actor.model_name_or_path=/absent/model", "no such model folder"),
        ("openrlhf.data.prompt_dataset=absent.jsonl", "absent.jsonl: no such file"),
        ("openrlhf.rollout.n_samples_per_prompt=1", "needs a group"),
        ("reference=absent.jsonl", "absent.jsonl: no such file"),
    ],
)
def test_train_refuses_before_anything_heavy_starts(tmp_path, write_jsonl, override, message):
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    prompts = write_jsonl("p.jsonl", [{"problem": "1+1="}])
    sets = [f"run_dir={tmp_path / 'run'}", f"openrlhf.data.prompt_dataset={prompts}", override]
    words = [word for item in sets for word in ("--set", item)]
    assert message in refused("train", "configs/cpu/demo.yaml", *words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--shard", "4/4"), "I/K"),
        (("--shard", "x"), "I/K"),
        (("--model", "/absent"), "no such model folder"),
        (("--prompts", "absent.jsonl"), "no such file"),
        (("--input-key", "question"), "has no column 'question'"),
        (("--max-len", "16"), "tokens"),
    ],
)
def test_reference_refuses_bad_input(tmp_path, write_jsonl, words, message):
    pytest.importorskip("transformers", reason="needs the training stack: make install")
    prompts = write_jsonl("p.jsonl", [{"problem": "123+456="}])
    model = ROOT / "restrain_openrlhf" / "data" / "demo_tasks" / "models" / "addition"
    given = ("--model", model, "--prompts", prompts, "--max-new-tokens", 14, "--max-len", 32)
    assert message in refused("reference", *given, "--out", tmp_path / "ref.jsonl", *words)
    assert not (tmp_path / "ref.jsonl").exists()


def test_reference_says_what_the_configuration_lacks(tmp_path):
    config = ROOT / "configs" / "cpu" / "demo.yaml"
    assert "Set `reference:`" in refused("reference", config, "--set", "reference=")
    sets = ("--set", "openrlhf.data.prompt_dataset=absent.jsonl", "--set", f"reference={tmp_path / 'r.jsonl'}")
    assert "absent.jsonl: no such file" in refused("reference", config, *sets)
    unlimited = ("--set", "openrlhf.rollout.max_new_tokens=")
    assert "rollout.max_new_tokens is not set" in refused("reference", config, *unlimited)
    assert "--shard '2/2'" in refused("reference", config, "--shard", "2/2")
    assert not (tmp_path / "r.jsonl").exists()


def texts(app: typer.Typer):
    """(command, option, help) of every command, those of groups included, and of the command itself."""
    waiting = [("", get_command(app))]
    while waiting:
        name, command = waiting.pop()
        waiting += [(f"{name} {word}".strip(), one) for word, one in getattr(command, "commands", {}).items()]
        yield name, "", command.help
        yield from ((name, option.opts[0], getattr(option, "help", None)) for option in command.params)


@pytest.mark.parametrize("app", [main.app, test_time_cli.app])
def test_help_texts_are_whole(app):
    found = list(texts(app))
    assert len(found) > 15
    for command, option, text in found:
        assert "[" not in (text or ""), f"{command} {option}: a default belongs in show_default"


@pytest.mark.parametrize(("app", "script"), [(main.app, main.main), (test_time_cli.app, test_time_cli.main)])
def test_a_narrow_terminal_cuts_off_no_option_and_no_word(app, script, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    options = [(command, option) for command, option, _ in texts(app) if option.startswith("--")]
    shown = {command: call(script, *command.split(), "--help").stdout for command, _ in options}
    assert len(options) > 15
    assert [option for option in options if option[1] not in shown[option[0]]] == []
    # The metavar of a digest ends in the only ellipsis that is meant.
    assert [line for text in shown.values() for line in text.splitlines() if "…" in line.replace("sha256:…", "")] == []
