"""`test-time adapt` over stand-ins for sampling and training: phases, stops, early ends, gold.

One adaptation over the real stack is in tests/e2e/test_adapt.py.
"""

import json
from itertools import pairwise
from types import SimpleNamespace

import pytest

from restrain_openrlhf.config import this_machine
from restrain_openrlhf.data.demo_tasks.problems import write_gold, write_prompts
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION, heldout_problems
from restrain_openrlhf.reference.offline_engine import Rollout
from test_time.adaptation import Adaptation
from test_time.problems import Source
from test_time.report import write_report
from tests.conftest import rows_of
from tests.test_time.conftest import CONFIG, Sampler, right_answer, run_test_time

PHASES = (
    "1 of 6: checking the model and the problems",
    "2 of 6: the base model votes",
    "3 of 6: training, beginning with Ray and vLLM",
    "4 of 6: the adapted model votes",
    "5 of 6: evaluating the base model",
    "6 of 6: evaluating the adapted model",
)
PROBLEMS = heldout_problems(4)


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch):
    """Drawing takes longer than all else here; the first test has them."""
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    monkeypatch.setattr("test_time.adapt.write_report", lambda *_: None)


@pytest.fixture
def paths(tmp_path):
    """Four problems, their answers, and the answers in another order."""
    write_prompts(tmp_path / "test.jsonl", PROBLEMS)
    write_gold(tmp_path / "gold.jsonl", PROBLEMS[::-1])
    pairs = [(one.id, other.answer) for one, other in pairwise([*PROBLEMS, PROBLEMS[0]])]
    rows = [json.dumps({"id": name, "answer": answer}) + "\n" for name, answer in pairs]
    (tmp_path / "shuffled.jsonl").write_text("".join(rows))
    return tmp_path


@pytest.fixture
def adapt(paths, stand_ins):
    """`test-time adapt` for six steps with a model saved after every second, in the folder of this name."""

    def run(name, *words, steps=6, **plan):
        stand_ins.plan(paths / name, **plan)
        given = [
            "--model",
            ADDITION.model,
            "--prompts",
            paths / "test.jsonl",
            "--out",
            paths / name,
            "--config",
            CONFIG,
        ]
        given += ["--steps", steps, "--votes", 8, "--set", "openrlhf.ckpt.save_steps=2"]
        return run_test_time("adapt", *given, *words)

    return run


def result(out):
    return json.loads((out / "result.json").read_text())


def reads(out):
    return json.loads((out / "reads.json").read_text())


def score(out, policy):
    (found,) = [one for one in result(out)["scores"] if one["policy"] == policy]
    return found


def test_every_problem_gets_an_answer_and_the_result_says_what_it_was_worth(adapt, paths, monkeypatch):
    monkeypatch.setattr("test_time.adapt.write_report", write_report)
    done = adapt("out", "--gold", paths / "gold.jsonl")
    assert done.returncode == 0, done.stderr
    out = paths / "out"
    phases = [line.partition("  test-time: ")[2] for line in done.stderr.splitlines() if "  test-time: " in line]
    steps = [f"step {step}/6" for step in range(1, 7)]
    told = [phase.split("  ")[0] for phase in phases if not phase.startswith("warning: 38% of the rollouts")]
    assert told == [*PHASES[:3], *steps, *PHASES[3:]]
    lines = done.stderr.splitlines()
    for n, model in ((8, "the base model"), (8, out / "train" / "model"), (1, "the base model")):
        assert f"{n} rollout{'s' if n > 1 else ''} of {model}: 4 of 4 problems" in lines
    predicted = rows_of(out / "predictions.jsonl")
    assert [(row["id"], row["answer"]) for row in predicted] == [(one.id, one.answer) for one in PROBLEMS]
    assert [(row["before_share"], row["vote_share"]) for row in predicted] == [(0.25, 0.75)] * 4
    found = result(out)
    assert (found["problems"], found["steps"], found["votes"], found["changed"]) == (4, 6, 8, 0)
    assert (found["alarm"], found["stopped"]) == (None, None)
    assert (found["chosen_step"], found["chosen_model"]) == (6, str(out / "train" / "model"))
    base, adapted = score(out, "base model"), score(out, "adapted model")
    assert (base["n"], base["pass_at_1"], base["maj_at_n"]) == (8, 0.25, 1.0)
    assert (adapted["n"], adapted["pass_at_1"], adapted["maj_at_n"]) == (8, 0.75, 1.0)
    assert (base["greedy"], adapted["greedy"], found["comparison"]["problems"]) == (1.0, 0.0, 4)
    said = (
        "Right: 100.0% (4 of 4). The base model alone: 100.0% with greedy answers, 100.0% (4 of 4) with such "
        "majorities. The adaptation gained nothing.\n"
    )
    assert said in done.stderr
    assert (out / "report.html").read_text().count("data:image/png") == 2


@pytest.mark.parametrize("base_right", [1, 3])
def test_the_headline_is_the_accuracy_of_the_file_that_is_handed_back(adapt, paths, monkeypatch, base_right):
    """By policy and temperature, of how many problems most rollouts are right; a fourth of them never is."""
    monkeypatch.setattr("test_time.adapt.write_report", write_report)
    most_right = {
        ("base", 0.0): 3,
        ("base", 0.6): base_right,
        ("base", 1.0): 4,
        ("adapted", 0.0): 4,
        ("adapted", 0.6): 2,
        ("adapted", 1.0): 1,
    }

    def rollout(sampler, prompt, place):
        policy = "base" if sampler.model == str(ADDITION.model) else "adapted"
        solved = [one.problem for one in PROBLEMS[: most_right[policy, sampler.sampling.temperature]]]
        answer = right_answer(prompt.text) if prompt.text in solved and place % 4 != 3 else "0.5"
        return Rollout(f"so \\boxed{{{answer}}}", tokens=5, truncated=False)

    monkeypatch.setattr(Sampler, "_rollout", rollout)
    done = adapt("out", "--gold", paths / "gold.jsonl")
    assert done.returncode == 0, done.stderr
    out = paths / "out"
    gold = {row["id"]: row["answer"] for row in rows_of(paths / "gold.jsonl")}
    predicted = rows_of(out / "predictions.jsonl")
    right = sum(row["answer"] == gold[row["id"]] for row in predicted)
    before = sum(row["before"] == gold[row["id"]] for row in predicted)
    assert (right, before) == (2, base_right), "both votes sample as the evaluation does"
    changed = sum(row["answer"] != row["before"] for row in predicted)
    said = (
        f"4 answers, {changed} of them changed by the adaptation. Each is the majority of 8 rollouts at T 0.6, top-p "
        "0.95, as in evaluations. Right: 50.0% (2 of 4). The base model alone: 75.0% with greedy answers, "
        f"{before / 4:.1%} ({before} of 4) with such majorities. The base model is better: use it without the "
        "adaptation."
    )
    found = result(out)
    for text in (done.stderr, (out / "report.html").read_text()):
        assert said in " ".join(text.split())
    assert (found["votes"], found["vote_temperature"], found["vote_top_p"]) == (8, 0.6, 0.95)
    assert (found["comparison"]["right"], found["comparison"]["right_before"]) == (right, before)
    assert found["comparison"]["greedy_before"] == 0.75
    assert score(out, "adapted model")["pass_at_1"] == 0.375, "what one sample is worth is another number"


def test_stopped_at_the_start_of_every_phase_it_comes_to_the_same_end_and_repeats_nothing(paths, stand_ins):
    from test_time.adapt import adapt

    def job(name):
        stand_ins.plan(paths / name)
        source, overrides = Source(str(paths / "test.jsonl")), {"openrlhf.ckpt.save_steps": 2}
        gold = paths / "gold.jsonl"
        return Adaptation(
            str(ADDITION.model), source, paths / name, config=CONFIG, steps=6, votes=8, gold=gold, overrides=overrides
        )

    def stop_at(phase):
        def told(name):
            if name == phase:
                raise KeyboardInterrupt

        return told

    whole = adapt(job("whole"))
    sampled = sorted(stand_ins.asked)
    stand_ins.asked.clear()
    for phase in PHASES:
        with pytest.raises(KeyboardInterrupt):
            adapt(job("stopped"), stop_at(phase))
    found = adapt(job("stopped"))
    moved = found.model_dump_json().replace("/stopped/", "/whole/")
    assert json.loads(moved) == json.loads(whole.model_dump_json())
    assert [(model.replace("/stopped/", "/whole/"), *rest) for model, *rest in sorted(stand_ins.asked)] == sampled
    assert len(rows_of(paths / "stopped" / "train" / "metrics.jsonl")) == 6


def test_a_finished_adaptation_answers_from_its_files_and_another_configuration_is_an_error(
    adapt, paths, stand_ins, monkeypatch
):
    gold = ("--gold", paths / "gold.jsonl")
    assert adapt("out", *gold).returncode == 0
    whole = result(paths / "out")
    stand_ins.refuse_processes(monkeypatch)
    assert adapt("out", *gold).returncode == 0
    assert result(paths / "out") == whole
    other = adapt("out", *gold, "--set", "openrlhf.rollout.temperature=0.5")
    assert other.returncode == 2
    assert "holds a different pass (temperature" in other.stderr
    (paths / "out" / "greedy_adapted.jsonl").unlink()
    assert "a process was started: reference" in adapt("out", *gold).stderr


def test_a_disk_without_room_for_the_checkpoints_is_refused_before_the_votes(adapt, paths, stand_ins, monkeypatch):
    monkeypatch.setattr(this_machine, "disk_usage", lambda _path: SimpleNamespace(free=0))
    assert "0.0 GiB are free, but the run saves about" in adapt("out").stderr
    assert not stand_ins.asked


def test_a_training_that_fails_is_told_with_its_reason_and_its_log_and_goes_on(adapt, paths):
    done = adapt("out", fail=4)
    assert done.returncode == 2
    assert "error: the policy has no gradient" in done.stderr
    assert f"Log: {paths / 'out' / 'train' / 'train.log'}" in done.stderr
    assert adapt("out").returncode == 0
    assert [row["step"] for row in rows_of(paths / "out" / "train" / "metrics.jsonl")] == list(range(1, 7))


def test_one_problem_and_a_rule_that_ends_the_run_early(adapt, paths, stand_ins):
    write_prompts(paths / "test.jsonl", PROBLEMS[:1])
    words = ("--set", "stop.kl=0.045", "--set", "stop.patience=2")
    done = adapt("out", *words, steps=60, hold=6)
    assert done.returncode == 0, done.stderr
    out = paths / "out"
    found = result(out)
    assert found["stopped"] == found["alarm"]
    # The KL is a hundredth of the step.
    alarm = "the KL to the base model passed its limit from step 5 to step 6 (0.06, limit 0.045)"
    assert (found["problems"], found["steps"], found["alarm"]) == (1, 6, alarm)
    last_good = str(out / "train" / "checkpoints" / "global_step4_hf")
    assert (found["chosen_step"], found["chosen_model"]) == (4, last_good)
    told = f"A stop rule ended training early: {alarm}. The last good model is the model of step 4."
    where, later = done.stderr.index(told), done.stderr.index("4 of 4: the adapted model votes")
    assert where < later < done.stderr.rindex(told), "said where it happens, and in the outcome"
    (row,) = rows_of(out / "predictions.jsonl")
    assert row["answer"] == PROBLEMS[0].answer
    stand_ins.asked.clear()
    assert adapt("out", *words, steps=60).returncode == 0
    assert result(out) == found, "an ended adaptation stays as it is"
    assert stand_ins.asked == []
    again = adapt("out", "--set", "stop.ends=false", steps=60)
    assert again.returncode == 2
    assert "cannot be continued without them" in again.stderr


def test_an_alarm_before_any_model_was_saved_leaves_the_base_model(adapt, paths):
    done = adapt("out", "--set", "stop.kl=0.001", "--set", "stop.patience=1", "--gold", paths / "gold.jsonl", hold=1)
    assert done.returncode == 0, done.stderr
    found = result(paths / "out")
    assert (found["chosen_step"], found["chosen_model"], found["changed"]) == (0, str(ADDITION.model), 0)
    assert "The last good model is the base model. Its votes are the answers." in done.stderr
    assert [one["policy"] for one in found["scores"]] == ["base model"]


def test_gold_changes_nothing_that_training_reads_and_is_put_to_use_after_it(adapt, paths):
    assert adapt("without").returncode == 0
    assert adapt("right", "--gold", paths / "gold.jsonl").returncode == 0
    assert adapt("shuffled", "--gold", paths / "shuffled.jsonl").returncode == 0
    outs = [paths / name for name in ("without", "right", "shuffled")]
    assert reads(outs[0]) == reads(outs[1]) == reads(outs[2])
    read = reads(outs[2])
    assert not [name for name in read["present"] if "gold" in name or "greedy" in name]
    assert "gold.jsonl" not in " ".join(read["words"])
    assert all(set(json.loads(line)) == {"id", "problem"} for line in read["files"]["prompts.jsonl"].splitlines())
    assert len({(out / "predictions.jsonl").read_bytes() for out in outs}) == 1
    assert score(outs[1], "adapted model")["pass_at_1"] == 0.75
    assert score(outs[2], "adapted model")["pass_at_1"] == 0.0
