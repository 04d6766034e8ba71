"""The main job, as `make demo` runs it: a model gets better by RESTRAIN with no labels, where TTRL makes it worse."""

import json
from pathlib import Path

import pytest

from restrain_openrlhf.commands.demo import Demo, run_demo
from restrain_openrlhf.data.demo_tasks.tasks import WORDS
from restrain_openrlhf.records.metrics import read_held_out, read_steps
from tests.e2e.conftest import restrain, run

pytest.importorskip("openrlhf", reason="needs the training stack (make install)")
pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(3600)]


def test_restrain_improves_held_out_accuracy_without_gold_where_ttrl_does_not(tmp_path):
    done = run(restrain("demo", "--out", tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    weights = [tmp_path / method / "train" / "model" / "model.safetensors" for method in ("restrain", "ttrl")]
    before = [path.stat().st_mtime_ns for path in weights]
    results, report = run_demo(Demo(tmp_path))
    assert [path.stat().st_mtime_ns for path in weights] == before, "a finished run is not trained again"
    gain = {each.method: each.held_out.after.pass_at_1 - each.held_out.before.pass_at_1 for each in results}
    assert gain["restrain"] >= 0.2
    assert gain["ttrl"] <= -0.2
    assert [result.method for result in results] == ["restrain", "ttrl"], "best first"
    assert report.read_text().count("data:image/png") == 2
    for method in ("restrain", "ttrl"):
        assert [row.step for row in read_held_out(tmp_path / method / "train")] == list(range(0, WORDS.steps + 1, 5))
    resolved = json.loads((tmp_path / "restrain" / "train" / "run.json").read_text())
    assert resolved["openrlhf"]["data.prompt_dataset"] == str(tmp_path / "prompts.jsonl")
    assert "answer" not in (tmp_path / "prompts.jsonl").read_text()
    shared = read_steps(tmp_path / "ttrl" / "train" / "metrics.jsonl")[-1].votes["top_answer_share"]
    assert shared > 0.5, "most of TTRL's majorities are the answer that gives up"
    the_runs_are_looked_at(tmp_path)


def the_runs_are_looked_at(demo: Path) -> None:
    """By the commands that a user has for it."""
    gold, trained = ("--gold", demo / "prompts-with-gold.jsonl"), demo / "restrain" / "train"
    right = {}
    for method in ("restrain", "ttrl"):
        done = run(restrain("analyze", demo / method / "train", *gold, "--json"))
        right[method] = json.loads(done.stdout)["total"]["label_accuracy"]
    assert right["restrain"] > right["ttrl"] + 0.1
    done = run(restrain("view", trained, *gold, "--out", demo / "view.html"))
    assert done.returncode == 0, done.stderr
    assert (demo / "view.html").stat().st_size > 100_000
    done = run(restrain("publish", trained))
    assert done.returncode == 0, done.stderr
    from transformers import AutoModelForCausalLM

    assert AutoModelForCausalLM.from_pretrained(trained / "hub").num_parameters() == 800_896
    done = run(restrain("premise", "--reference", demo / "reference.jsonl", *gold, "--json"))
    (warning,) = [each["text"] for each in json.loads(done.stdout)["findings"] if each["level"] == "warning"]
    assert "A shared shortcut: 'unknown'" in warning
