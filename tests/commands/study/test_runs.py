"""`restrain study` over a stand-in for training: what runs when, what a stop or a failure leaves, what is written.

One study over the real stack is in tests/e2e/test_study.py.
"""

import csv
import json
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from restrain_openrlhf.commands.study import plan_study  # noqa: E402
from restrain_openrlhf.config.command_line import parse_overrides  # noqa: E402
from restrain_openrlhf.config.yaml_file import load_run_config  # noqa: E402
from restrain_openrlhf.evaluation import figures  # noqa: E402
from restrain_openrlhf.evaluation.figures import save_figures  # noqa: E402
from restrain_openrlhf.machine import processes  # noqa: E402
from restrain_openrlhf.reference import offline_pass  # noqa: E402
from tests.command_line import restrain  # noqa: E402
from tests.reference import by_hand  # noqa: E402

FLAGS = "openrlhf: {eval.dataset: held.jsonl, eval.steps: 1, data.label_key: answer}"


@pytest.fixture
def out(tmp_path, monkeypatch):
    """The study's folder, with the stand-in in the place of the process that trains."""
    monkeypatch.setattr(processes, "MODULE", "tests.commands.study.trainer")
    monkeypatch.setattr(processes, "POLL_SECONDS", 0.02)
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch):
    """Drawing takes longer than all else here; the first test has them."""
    monkeypatch.setattr(figures, "save_figures", lambda *_: [])


@pytest.fixture
def configs(tmp_path):
    """TTRL and gold GRPO, in the folder `small`."""
    folder = tmp_path / "small"
    folder.mkdir()
    for name in ("ttrl", "grpo_gold"):
        (folder / f"{name}.yaml").write_text(f"run_dir: unused\nmethod: {{name: {name}}}\n{FLAGS}\n")
    return [folder / "ttrl.yaml", folder / "grpo_gold.yaml"]


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


def test_every_configuration_trains_with_every_seed_and_all_are_compared(configs, out, monkeypatch):
    monkeypatch.setattr(figures, "save_figures", save_figures)
    done = study(configs, out, seeds=2)
    assert done.returncode == 0, done.stderr
    assert started(out) == [f"small/{name}/seed-{seed}" for seed in (42, 43) for name in ("ttrl", "grpo_gold")]
    assert "small/ttrl seed 42: done" in done.stderr
    assert f"table: {out / 'table.md'}" in done.stderr
    rows = list(csv.DictReader((out / "table.csv").open()))
    assert [(row["method"], row["seeds"], row["before"], row["after"]) for row in rows] == [
        ("ttrl", "2", "50.0%", "70.0%"),
        ("grpo_gold", "2", "60.0%", "80.0%"),
    ]
    assert "| small | ttrl | 2 |" in (out / "table.md").read_text()
    assert {path.name for path in out.glob("*.png")} == {"curves.png"}


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
    assert "run the same command to resume" in done.stderr
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
    configs = [tmp_path / "small" / f"{name}.yaml" for name in ("restrain", "srt_offline")]
    configs[0].parent.mkdir()
    for path in configs:
        path.write_text(f"run_dir: x\nreference: {tmp_path / 'r.jsonl'}\nmethod: {{name: {path.stem}}}\n{FLAGS}\n")
    asked = []

    def sample(config, path):
        asked.append((config.method.name, started(out)))
        path.touch()

    monkeypatch.setattr(offline_pass, "sample_reference", sample)
    done = study(configs, out, seeds=2)
    assert done.returncode == 0, done.stderr
    assert asked == [("restrain", [])]
    assert f"sampling the reference {tmp_path / 'r.jsonl'}" in done.stderr


@pytest.mark.parametrize(
    ("lines", "sampled"), [(["1+1=", "2+2="], False), (["1+1="], True), ([], True), (["1+1=", "cut off"], True)]
)
def test_a_reference_that_a_kill_or_a_failure_left_unfinished_is_gone_on_with(
    tmp_path, out, monkeypatch, lines, sampled
):
    path = by_hand.write(tmp_path / "r.jsonl", [by_hand.line(each, ["1"] * 16) for each in lines], prompt_count=2)
    if "cut off" in lines:
        path.write_text(path.read_text()[:-20])
    (tmp_path / "small").mkdir()
    config = tmp_path / "small" / "srt_offline.yaml"
    config.write_text(f"run_dir: x\nreference: {path}\nmethod: {{name: srt_offline}}\n{FLAGS}\n")
    asked = []
    monkeypatch.setattr(offline_pass, "sample_reference", lambda config, path: asked.append(path))
    assert study([config], out).returncode == 0
    assert asked == [path] * sampled


def test_a_complete_run_of_other_prompts_is_not_compared_with_the_new_ones(configs, out, monkeypatch):
    """Its folder was made by `restrain train`, with the digests of its prompts."""
    from restrain_openrlhf.config.host_flags import host_flags
    from restrain_openrlhf.records.folder import RunFolder

    held = out.parent / "held.jsonl"
    held.write_text('{"problem": "1+1", "answer": "2"}\n')
    words = ["--set", f"openrlhf.eval.dataset={held}"]
    assert study(configs, out, *words).returncode == 0
    for run in plan_study(configs, 1, out, parse_overrides(words[1::2])):
        folder = RunFolder(run.config.run_dir)
        folder.completed.rename(folder.path / "aside")
        folder.claim(run.config, host_flags(run.config))
        (folder.path / "aside").rename(folder.completed)
    assert study(configs, out, *words).returncode == 0
    held.write_text('{"problem": "1+2", "answer": "3"}\n')
    done = study(configs, out, *words)
    assert done.returncode == 2
    assert "eval.dataset was sha256:" in done.stderr
