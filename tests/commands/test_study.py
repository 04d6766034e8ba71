"""`restrain study` over a stand-in for training: what is refused, what runs when, what a stop leaves, what is written.

One study over the real stack is in tests/e2e/test_study.py.
"""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ray", reason="needs the training stack: make install")

from restrain_openrlhf.commands import study as command
from restrain_openrlhf.commands.study import accuracies, plan_study, write_study
from restrain_openrlhf.config.command_line import parse_overrides
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.errors import ConfigError, RunError
from restrain_openrlhf.evaluation import figures
from restrain_openrlhf.machine import processes
from tests.command_line import restrain
from tests.reference import by_hand

FLAGS = {"eval.dataset": "held.jsonl", "eval.steps": 1, "data.label_key": "answer"}


def config(folder, name, method=None, flags=FLAGS, reference=None):
    """A configuration of this method (None: the one of that name), in the folder `small`."""
    path = folder / "small" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    content = {"run_dir": "x", "method": method or {"name": name}, "openrlhf": dict(flags)}
    path.write_text(json.dumps({**content, **({"reference": str(reference)} if reference else {})}))
    return path


@pytest.fixture
def configs(tmp_path):
    """TTRL and gold GRPO."""
    return [config(tmp_path, name) for name in ("ttrl", "grpo_gold")]


def test_every_configuration_runs_with_every_seed_and_all_methods_come_before_the_next_seed(configs, tmp_path):
    runs = plan_study(configs, 2, tmp_path / "out")
    names = ["ttrl seed 42", "grpo_gold seed 42", "ttrl seed 43", "grpo_gold seed 43"]
    assert [run.label for run in runs] == [f"small/{name}" for name in names]
    assert [run.config.openrlhf["train.seed"] for run in runs] == [42, 42, 43, 43]
    assert runs[0].config.run_dir == tmp_path / "out" / "small" / "ttrl" / "seed-42"
    assert len({run.config.run_dir for run in runs}) == 4
    assert all(run.config.evaluate_first for run in runs)


def test_what_a_study_cannot_compare_is_refused(configs, tmp_path):
    for key in ("run_dir", "openrlhf.train.seed", "evaluate_first"):
        with pytest.raises(ConfigError, match=f"--set {key}: a study sets it for each run"):
            plan_study(configs, 1, tmp_path / "out", {key: 7})
    with pytest.raises(ConfigError, match="Two configurations have one name"):
        plan_study([configs[0], *configs], 1, tmp_path)
    for missing in FLAGS:
        without = config(tmp_path, "ttrl", flags={name: FLAGS[name] for name in FLAGS if name != missing})
        with pytest.raises(ConfigError, match=f"openrlhf has no {missing}, and a study compares"):
            plan_study([without], 1, tmp_path)


def evaluated(run, by_step, **numbers):
    run.config.run_dir.mkdir(parents=True, exist_ok=True)
    rows = [{"step": step, "eval_default_pass1": value, "eval_num_samples": 1600} for step, value in by_step.items()]
    (run.config.run_dir / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    votes = {"majority_share_mean": 0.75, "top_answer_share": 0.25}
    metrics = {"step": max(by_step), "votes": votes, **numbers}
    (run.config.run_dir / "metrics.jsonl").write_text(json.dumps(metrics) + "\n")


def test_a_curve_is_the_mean_over_seeds_of_the_steps_they_share(configs, tmp_path):
    one, other = plan_study(configs[:1], 2, tmp_path / "out")
    with pytest.raises(RunError, match="no run has an evaluation yet"):
        write_study([one, other], tmp_path / "out")
    evaluated(one, {0: 0.5, 5: 0.6, 10: 0.8})
    evaluated(other, {0: 0.5, 5: 0.8})
    (curve,) = accuracies([one, other])
    assert curve.steps == (0, 5)
    assert curve.mean == pytest.approx([0.5, 0.7])
    assert curve.deviation == pytest.approx([0, np.sqrt(0.02)])


def test_runs_are_compared_at_a_kl_that_both_reach():
    def run(*rows):
        return [command.EvaluatedStep(*row) for row in rows]

    slow, fast = run((0, 0.5, 0), (10, 0.6, 0.02), (20, 0.7, 0.05)), run((0, 0.5, 0), (10, 0.8, 0.04), (20, 0.9, 0.4))
    assert command._at_equal_kl(fast, slow) == 0.8
    assert command._at_equal_kl(slow, fast) == 0.7


def test_the_table_and_pictures_are_written(tmp_path):
    methods = {"half": {"name": "restrain"}, "zero": {"name": "restrain", "sigma": 0}}
    runs = plan_study([config(tmp_path, *each) for each in methods.items()], 2, tmp_path / "out")
    for run, accuracy in zip(runs, (0.6, 0.3, 0.8, 0.3), strict=True):
        evaluated(run, {0: 0.5, 10: accuracy, 20: accuracy - 0.1}, **{"restrain/kl": 0.01})
    write_study(runs, tmp_path / "out")
    _, _, header, _, half, _, *pairs = (tmp_path / "out" / "table.md").read_text().splitlines()
    # Zero is 0.3 behind, then 0.5; Student's t of one degree of freedom: 0.4 ± 12.71 × 0.1414 / √2.
    said = "{} points [{}, {}] over 2 seeds: no difference may be claimed"
    assert pairs[-2].endswith(said.format("-40.0", "-167.1", "+87.1"))
    assert pairs[-1].endswith(said.format("-20.0", "-147.1", "+107.1"))
    assert header == "| group | method | seeds | before | after | sd | best | at step | steps |"
    assert half == "| small | half | 2 | 50.0% | 60.0% | 14.1% | 70.0% | 10 | 20 |"
    assert {path.name for path in (tmp_path / "out").glob("*.png")} == {"curves.png"}
    evaluated(runs[0], {0: 0.5, 20: 0.6})
    write_study(runs, tmp_path / "out")
    assert "at equal KL: not known, because a run has no KL" in (tmp_path / "out" / "table.md").read_text()


@pytest.fixture
def out(tmp_path, monkeypatch):
    """The study's folder, with the stand-in in the place of the process that trains."""
    monkeypatch.setattr(processes, "MODULE", "tests.commands.study_trainer")
    monkeypatch.setattr(processes, "POLL_SECONDS", 0.02)
    # Drawing takes longer than all else here.
    monkeypatch.setattr(figures, "save_figures", lambda *_: [])
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def study(configs, out, *words, seeds=1):
    return restrain("study", *configs, "--out", out, "--seeds", seeds, *words)


def started(out):
    """group/method/seed of every process that trained, in the order of their starts."""
    path = out / "started.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    folders = [next(word for word in words if word.startswith("run_dir=")) for words in rows]
    return ["/".join(Path(folder).parts[-3:]) for folder in folders]


def steps(run_dir, name="metrics"):
    return [json.loads(line)["step"] for line in (run_dir / f"{name}.jsonl").read_text().splitlines()]


def test_a_run_is_started_with_what_was_planned_for_it(configs, out):
    items = ["openrlhf.actor.adam.lr=1e-4", 'openrlhf.data.input_template="Q: {}\\nA:"', "openrlhf.eval.steps=3"]
    (planned,) = plan_study(configs[:1], 1, out, parse_overrides(items))
    done = study(configs[:1], out, *(word for item in items for word in ("--set", item)))
    assert done.returncode == 0, done.stderr
    (words,) = [json.loads(line) for line in (out / "started.jsonl").read_text().splitlines()]
    command, source, *rest = words
    assert (command, source) == ("train", str(configs[0]))
    assert load_run_config(Path(source), parse_overrides([word for word in rest if word != "--set"])) == planned.config


def test_a_study_stopped_by_sigterm_goes_on_where_it_was(configs, out):
    (out / "stop").write_text("ttrl")
    done = study(configs, out)
    assert done.returncode == 130
    assert "the same command resumes" in done.stderr
    ttrl = out / "small" / "ttrl" / "seed-42"
    assert started(out) == ["small/ttrl/seed-42"]
    assert steps(ttrl) == [1]
    assert not (ttrl / "completed.json").exists()
    (out / "stop").unlink()
    done = study(configs, out)
    assert done.returncode == 0, done.stderr
    assert started(out)[1:] == ["small/ttrl/seed-42", "small/grpo_gold/seed-42"]
    assert steps(ttrl) == [1, 2]
    assert steps(ttrl, "evaluations") == [0, 1, 2]
    assert (out / "table.md").read_text().count("| small |") == 2


def test_a_run_that_fails_stops_no_other_and_the_same_command_repeats_it_alone(configs, out):
    (out / "fail" / "ttrl").mkdir(parents=True)
    done = study(configs, out)
    assert done.returncode == 2
    assert "small/ttrl seed 42: FAILED" in done.stderr
    assert "small/grpo_gold seed 42: done" in done.stderr
    log = out / "small" / "ttrl" / "seed-42.log"
    assert "1 of 2 runs failed" in done.stderr
    assert str(log) in done.stderr
    assert "error: no such model" in log.read_text()
    assert "| small | grpo_gold | 1 |" in (out / "table.md").read_text(), "what there is, is shown"
    (out / "fail" / "ttrl").rmdir()
    assert study(configs, out).returncode == 0
    assert started(out)[2:] == ["small/ttrl/seed-42"]


def test_a_stop_ends_all_the_runs_that_go_at_once(configs, out):
    (out / "meet").write_text("1")
    (out / "stop").write_text("ttrl")
    assert study(configs, out, "--jobs", 2).returncode == 130
    assert sorted(started(out)) == ["small/grpo_gold/seed-42", "small/ttrl/seed-42"]
    assert not list(out.rglob("completed.json"))


def test_a_reference_that_runs_share_is_sampled_once_before_the_first_trains(tmp_path, out, monkeypatch):
    configs = [config(tmp_path, name, reference=tmp_path / "r.jsonl") for name in ("restrain", "srt_offline")]
    asked = []

    def sample(config, path):
        asked.append((config.method.name, started(out)))
        path.touch()

    monkeypatch.setattr(command, "sample_reference", sample)
    done = study(configs, out, seeds=2)
    assert done.returncode == 0, done.stderr
    assert asked == [("restrain", [])]
    assert f"sampling the reference {tmp_path / 'r.jsonl'}" in done.stderr


@pytest.mark.parametrize(
    ("lines", "sampled"), [(["1+1=", "2+2="], False), (["1+1="], True), (["1+1=", "cut off"], True)]
)
def test_a_reference_that_a_kill_left_unfinished_is_gone_on_with(tmp_path, out, monkeypatch, lines, sampled):
    path = by_hand.write(tmp_path / "r.jsonl", [by_hand.line(each, ["1"] * 16) for each in lines], prompt_count=2)
    if "cut off" in lines:
        path.write_text(path.read_text()[:-20])
    asked = []
    monkeypatch.setattr(command, "sample_reference", lambda config, path: asked.append(path))
    assert study([config(tmp_path, "srt_offline", reference=path)], out).returncode == 0
    assert asked == [path] * sampled


def test_a_complete_run_of_other_prompts_is_not_compared_with_the_new_ones(configs, out):
    """Its folder was made by `restrain train`, with the digests of its prompts."""
    from restrain_openrlhf.config.host_flags import host_flags
    from restrain_openrlhf.records.folder import RunFolder, RunRecord

    held = out.parent / "held.jsonl"
    held.write_text('{"problem": "1+1", "answer": "2"}\n')
    words = ["--set", f"openrlhf.eval.dataset={held}"]
    assert study(configs, out, *words).returncode == 0
    for run in plan_study(configs, 1, out, parse_overrides(words[1::2])):
        folder = RunFolder(run.config.run_dir)
        folder.completed.rename(folder.path / "aside")
        folder.claim(RunRecord(run.config, host_flags(run.config)))
        (folder.path / "aside").rename(folder.completed)
    assert study(configs, out, *words).returncode == 0
    held.write_text('{"problem": "1+2", "answer": "3"}\n')
    done = study(configs, out, *words)
    assert done.returncode == 2
    assert "eval.dataset was sha256:" in done.stderr
