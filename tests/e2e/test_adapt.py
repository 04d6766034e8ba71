"""`test-time` from start to end: answers for every problem, what they were worth, kills, early ends, real problems."""

import json
import sys
from pathlib import Path

import pytest

from restrain_openrlhf.data.demo_tasks.problems import write_gold, write_prompts
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION, heldout_problems, training_problems
from tests.conftest import ROOT, rows_of
from tests.e2e.conftest import kill_when, run

pytest.importorskip("openrlhf", reason="needs the training stack (make install)")
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

CONFIG = ROOT / "configs" / "cpu" / "test_time.yaml"
# Real problems have hundreds of characters, which are this model's tokens.
REAL = {
    "data.max_len": 2048,
    "rollout.max_new_tokens": 48,
    "rollout.n_samples_per_prompt": 4,
    "rollout.micro_batch_size": 16,
    "train.batch_size": 32,
    "train.micro_batch_size": 16,
}


def words_of(*words: object) -> list[str]:
    return [sys.executable, "-m", "test_time.cli", "adapt", "--model", str(ADDITION.model), *map(str, words)]


def sets(flags: dict[str, object]) -> list[str]:
    return [word for name, value in flags.items() for word in ("--set", f"openrlhf.{name}={value}")]


def result(out: Path) -> dict:
    return json.loads((out / "result.json").read_text())


@pytest.mark.long
def test_a_test_set_without_answers_gets_answers_that_are_better(tmp_path):
    problems, out = heldout_problems(48), tmp_path / "out"
    write_prompts(tmp_path / "test.jsonl", problems)
    write_gold(tmp_path / "gold.jsonl", problems[::-1])
    paths = ("--prompts", tmp_path / "test.jsonl", "--out", out, "--config", CONFIG)
    done = run(words_of(*paths, "--gold", tmp_path / "gold.jsonl"))
    assert done.returncode == 0, done.stderr[-3000:]

    predicted = rows_of(out / "predictions.jsonl")
    assert [row["id"] for row in predicted] == [problem.id for problem in problems]
    assert all(row["answer"] is not None and 0 < row["vote_share"] <= 1 for row in predicted)
    found = result(out)
    base, adapted = found["scores"]
    assert adapted["pass_at_1"] > base["pass_at_1"], "adaptation must raise pass@1"
    assert (base["policy"], base["n"], adapted["n"]) == ("base model", 64, 64)
    gold = {problem.id: problem.answer for problem in problems}
    right, before = (sum(int(row[key]) == int(gold[row["id"]]) for row in predicted) for key in ("answer", "before"))
    assert (
        f"Right: {right / 48:.1%} ({right} of 48). The base model alone: {base['greedy']:.1%} with greedy"
        in done.stderr
    )
    assert (found["comparison"]["right"], found["comparison"]["right_before"]) == (right, before)
    provenance = json.loads((out / "after.jsonl.provenance.json").read_text())
    assert (provenance["temperature"], provenance["top_p"]) == (found["vote_temperature"], found["vote_top_p"])
    assert found["comparison"]["problems"] == 48
    assert found["steps"] == 24
    assert (Path(found["chosen_model"]) / "model.safetensors").exists()
    assert (out / "report.html").read_text().count("data:image/png") == 2
    refuse_gold_in_training(out)


def refuse_gold_in_training(out: Path) -> None:
    """Gold is in nothing that training reads or writes."""
    assert all(set(row) == {"id", "problem"} for row in rows_of(out / "prompts.jsonl"))
    for name in ("run.json", "hook.yaml", "train.log"):
        assert "gold.jsonl" not in (out / "train" / name).read_text(errors="replace")


@pytest.mark.long
def test_killed_resumed_and_with_shuffled_gold_it_is_the_same_run(tmp_path):
    """Against a run without any gold: what training does cannot depend on it."""
    problems = heldout_problems(16)
    write_prompts(tmp_path / "test.jsonl", problems)
    answers = [problem.answer for problem in problems[1:] + problems[:1]]
    shuffled = [{"id": problem.id, "answer": answer} for problem, answer in zip(problems, answers, strict=True)]
    (tmp_path / "shuffled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in shuffled))

    def command(name: str, *gold: object) -> list[str]:
        paths = ("--prompts", tmp_path / "test.jsonl", "--out", tmp_path / name, "--config", CONFIG)
        options = ("--steps", 6, "--votes", 8, *gold)
        return words_of(*paths, *options, *sets({"ckpt.save_steps": 2}))

    whole = run(command("whole"))
    assert whole.returncode == 0, whole.stderr[-3000:]
    with_gold = command("killed", "--gold", tmp_path / "shuffled.jsonl")
    metrics = tmp_path / "killed" / "train" / "metrics.jsonl"
    kill_when(with_gold, lambda: metrics.exists() and len(rows_of(metrics)) >= 3, lambda: "")
    resumed = run(with_gold)
    assert resumed.returncode == 0, resumed.stderr[-3000:]

    log = (tmp_path / "killed" / "train" / "train.log").read_text(errors="replace")
    assert "Loading the checkpoint" in log
    for name in ("train/model/model.safetensors", "predictions.jsonl", "after.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "killed" / name).read_bytes(), name
    adapted = [score for score in result(tmp_path / "killed")["scores"] if score["policy"] == "adapted model"]
    assert adapted[0]["pass_at_1"] < 0.5, "what is measured after training did read the shuffled gold"
    assert result(tmp_path / "whole")["scores"] == []


@pytest.mark.long
def test_one_problem_and_rules_that_end_the_run_early(tmp_path):
    write_prompts(tmp_path / "one.jsonl", training_problems(1))
    out = tmp_path / "out"
    paths = ("--prompts", tmp_path / "one.jsonl", "--out", out, "--config", CONFIG)
    rules = ("--set", "stop.kl=1e-12", "--set", "stop.patience=1", "--steps", 60, "--votes", 8)
    words = words_of(*paths, *rules, *sets({"ckpt.save_steps": 1}))
    done = run(words)
    assert done.returncode == 0, done.stderr[-3000:]
    found = result(out)
    assert found["stopped"]
    assert found["alarm"].startswith("the KL to the base model passed its limit from step ")
    # A few more steps are taken while the host ends.
    assert 0 < found["chosen_step"] < found["steps"] < 60
    assert found["chosen_model"].endswith(f"global_step{found['chosen_step']}_hf")
    (row,) = rows_of(out / "predictions.jsonl")
    assert row["answer"] is not None
    assert "A stop rule ended training early" in done.stderr
    again = run(words)
    assert again.returncode == 0
    assert result(out) == found, "an ended adaptation stays as it is"


@pytest.mark.long
def test_two_steps_on_a_set_of_real_problems(tmp_path, shared):
    paths = ("--prompts", shared / "benchmarks" / "aime24.jsonl", "--out", tmp_path, "--config", CONFIG)
    # The model has learned sums: 48 of its tokens answer no problem of AIME.
    options = ("--method", "ttrl", "--boxed", "--steps", 2, "--votes", 2, "--set", "missing_limit=null")
    done = run(words_of(*paths, *options, *sets(REAL)))
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(rows_of(tmp_path / "predictions.jsonl")) == 30
    assert [row["step"] for row in rows_of(tmp_path / "train" / "metrics.jsonl")] == [1, 2]
