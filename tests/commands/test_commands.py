"""What a user types, and what bad input gets: one line that says what is wrong, and exit status 2."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.command_line import refused, restrain
from tests.conftest import ROOT


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def boxed(*answers):
    return [f"so \\boxed{{{answer}}}" if answer else "no answer" for answer in answers]


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


@pytest.mark.host
def test_agent_path_checks_an_agent_that_is_wrapped_and_says_which_line_names_it(tmp_path):
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    theirs, wrong = ROOT / "examples" / "calculator_agent.py", tmp_path / "wrong.py"
    done = restrain("agent-path", "--wrap", theirs)
    assert Path(done.stdout.strip()).name == "agent.py"
    assert f"agent: {theirs}" in done.stderr
    wrong.write_text("import torch\n")
    assert "has no class AgentExecutor" in refused("agent-path", "--wrap", wrong)
    assert "absent.py cannot be read" in refused("agent-path", "--wrap", tmp_path / "absent.py")


def test_score_writes_the_golden_row(write_jsonl, tmp_path):
    rollouts = [
        {"id": "g", "problem": "p", "responses": boxed(*["1"] * 12, *["2"] * 4), "answer": "1", "source": "x"},
        {"id": 2, "problem": "q", "responses": boxed(*map(str, range(16)))},
    ]
    path = write_jsonl("r.jsonl", rollouts)
    words = (
        "--method",
        "restrain",
        "--set",
        "std=population",
        "--set",
        "prompt_weight=1.0",
        "--out",
        tmp_path / "o.jsonl",
    )
    done = restrain("score", path, *words)
    assert done.returncode == 0, done.stderr
    first, second = rows_of(tmp_path / "o.jsonl")
    assert list(first) == [
        "id",
        "answers",
        "classes",
        "counts",
        "majority",
        "majority_count",
        "penalized",
        "label_weights",
        "prompt_weight",
        "advantage_pos",
        "advantage_neg",
    ]
    assert (first["counts"], first["majority"], first["majority_count"]) == ([12, 4], "1", 12)
    assert first["label_weights"] == pytest.approx([0.731, 0.269], abs=1e-3)
    assert first["advantage_pos"][0] + first["advantage_neg"][0] == pytest.approx(0.267, abs=1e-3)
    assert second["id"] == 2
    assert second["penalized"] is True
    assert second["advantage_neg"] == [-1.0] * 16


@pytest.mark.parametrize(
    ("rows", "words", "message"),
    [
        ([{"id": 1, "problem": "p"}], (), "line 1: responses"),
        ([{"id": 1, "problem": "p", "responses": []}], (), "responses is empty"),
        ([{"id": 1, "problem": "p", "responses": ["x"]}], ("--method", "restran"), "Did you mean 'restrain'"),
        ([{"id": 1, "problem": "p", "responses": ["x"]}], ("--set", "kapa=3"), "Did you mean 'kappa'"),
        ([{"id": 1, "problem": "p", "responses": ["x"]}], ("--reference", "absent.jsonl"), "absent.jsonl"),
    ],
)
def test_score_refuses_bad_input(write_jsonl, tmp_path, rows, words, message):
    path = write_jsonl("r.jsonl", rows)
    assert message in refused("score", path, "--out", tmp_path / "o.jsonl", *words)


@pytest.mark.parametrize("command", ["show", "train"])
def test_a_key_among_the_flags_is_refused_and_not_repeated(command):
    """The list of processes would show it, and the output of `show` is asked for in issues."""
    said = refused(command, "cpu/demo", "--set", "openrlhf.logger.wandb.key=0123456789abcdef")
    assert "Set it to 'dummy' and put the key into the environment, as WANDB_API_KEY" in said
    assert "0123456789abcdef" not in said


@pytest.mark.host
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("openrlhf.actor.adam.lrr=1", "Did you mean 'openrlhf.actor.adam.lr'"),
        ("openrlhf.actor.model_name_or_path=/absent/model", "no such model folder"),
        ("openrlhf.data.prompt_dataset=absent.jsonl", "absent.jsonl: no such file"),
        ("openrlhf.rollout.n_samples_per_prompt=1", "needs a group"),
        ("method.kapa=1", "Did you mean 'method.kappa'"),
        ("methd.kappa=1", "Did you mean 'method.kappa'"),
        ("reference=absent.jsonl", "absent.jsonl.provenance.json"),
    ],
)
def test_train_refuses_before_anything_heavy_starts(tmp_path, write_jsonl, override, message):
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    prompts = write_jsonl("p.jsonl", [{"problem": "1+1="}])
    sets = [f"run_dir={tmp_path / 'run'}", f"openrlhf.data.prompt_dataset={prompts}", override]
    words = [word for item in sets for word in ("--set", item)]
    assert message in refused("train", "configs/cpu/demo.yaml", *words)
    assert not (tmp_path / "run").exists()


@pytest.mark.host
def test_train_refuses_bad_prompt_sets(tmp_path, write_jsonl):
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    for rows, message in (([], "no prompts"), ([{"problem": "x"}, {"problem": "x"}], "the same prompt")):
        sets = (f"run_dir={tmp_path / 'run'}", f"openrlhf.data.prompt_dataset={write_jsonl('p.jsonl', rows)}")
        assert message in refused("train", "configs/cpu/demo.yaml", *[w for item in sets for w in ("--set", item)])


@pytest.mark.host
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


def test_plot_draws_runs_and_refuses_a_folder_that_is_none(tmp_path):
    from restrain_openrlhf.hook.logging.trainer import append_step
    from tests.hook.test_trainer_metrics import votes

    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for step in (1, 2):
            append_step(tmp_path / name / "metrics.jsonl", step, {"kl": 0.1 * step}, votes())
    done = restrain("plot", tmp_path / "one", tmp_path / "two", "--out", tmp_path / "plots")
    assert done.returncode == 0, done.stderr
    pictures = {path.name for path in (tmp_path / "plots").glob("*.png")}
    assert pictures == {"training.png", "votes.png", "speed.png"}
    assert "metrics.jsonl" in refused("plot", tmp_path)


STUDY = "run_dir: x\nmethod: {name: ttrl}\nopenrlhf: {eval.dataset: h.jsonl, eval.steps: 1, data.label_key: answer}\n"


def test_a_run_of_a_study_that_fails_is_named_with_its_log(tmp_path):
    (tmp_path / "a.yaml").write_text(STUDY)
    message = refused("study", tmp_path / "a.yaml", "--seeds", 1, "--out", tmp_path / "o")
    assert "1 of 1 runs failed" in message
    log = tmp_path / "o" / tmp_path.name / "a" / "seed-42.log"
    assert str(log) in message
    assert "vllm.num_engines is None. Set it to 1 or more" in log.read_text()


def test_reference_says_what_the_configuration_lacks(tmp_path):
    config = ROOT / "configs" / "cpu" / "demo.yaml"
    assert "Set `reference:`" in refused("reference", config, "--set", "reference=")
    sets = ("--set", "openrlhf.data.prompt_dataset=absent.jsonl", "--set", f"reference={tmp_path / 'r.jsonl'}")
    assert "absent.jsonl: no such file" in refused("reference", config, *sets)
    unlimited = ("--set", "openrlhf.rollout.max_new_tokens=")
    assert "rollout.max_new_tokens is not set" in refused("reference", config, *unlimited)
    assert "--shard '2/2'" in refused("reference", config, "--shard", "2/2")
    assert not (tmp_path / "r.jsonl").exists()
