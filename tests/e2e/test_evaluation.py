"""`restrain eval` through the real vLLM: the demo's task; killed and resumed; sharded as whole."""

import json

import pytest

from restrain_openrlhf.data.demo_tasks.problems import write_gold
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION, heldout_problems
from tests.e2e.conftest import kill_when, restrain, run

pytest.importorskip("vllm", reason="needs the sampling stack (make install)")
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

COUNT = 200
LENGTH = ("--answers", "math", "--template", "plain", "--max-new-tokens", "24", "--n", "8")


def command(out, benchmarks, *words):
    return restrain("eval", "--model", ADDITION.model, "--benchmarks", benchmarks, "--out", out, *LENGTH, *words)


def evaluate(out, benchmarks, *words):
    done = run(command(out, benchmarks, *words))
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def result(out, name):
    return json.loads((out / name / "result.json").read_text())


def responses(out, name):
    lines = [line for path in (out / name).glob("responses*.jsonl") for line in path.read_text().splitlines()]
    return {row["id"]: row for row in map(json.loads, lines)}


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    path = tmp_path_factory.mktemp("task") / "add.jsonl"
    write_gold(path, heldout_problems(COUNT))
    return path


@pytest.fixture(scope="module")
def whole(task, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    evaluate(out, f"add={task}")
    return out


def test_the_demos_task_has_the_models_accuracy(whole):
    scores = result(whole, "add")["scores"]
    assert 0.4 < scores["low"] < scores["pass_at_1"] < scores["high"] < 0.95
    assert scores["pass_at_1"] <= scores["pass_at_k"]["8"]
    assert scores["truncated_share"] < 0.05
    assert len(responses(whole, "add")) == COUNT
    assert scores["low"] < scores["pass_at_1"] < scores["high"]


@pytest.mark.long
def test_a_killed_evaluation_goes_on_to_the_same_numbers(task, whole, tmp_path):
    out = tmp_path / "out"
    path = out / "add" / "responses.jsonl"
    kill_when(command(out, f"add={task}"), lambda: path.exists() and path.read_bytes().count(b"\n") >= 64, lambda: "")
    kept = path.read_bytes()
    assert 64 <= kept.count(b"\n") < COUNT
    evaluate(out, f"add={task}")
    assert path.read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])
    assert result(out, "add")["scores"] == result(whole, "add")["scores"]
    assert responses(out, "add") == responses(whole, "add")


@pytest.mark.long
def test_shards_give_the_whole(task, whole, tmp_path):
    for index in (1, 0):
        evaluate(tmp_path, f"add={task}", "--shard", f"{index}/2")
    done = run(restrain("regrade", tmp_path))
    assert done.returncode == 0, done.stderr
    assert responses(tmp_path, "add") == responses(whole, "add")
    assert result(tmp_path, "add")["scores"] == result(whole, "add")["scores"]
