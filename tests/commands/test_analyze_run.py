"""`restrain analyze RUN --gold FILE`: what a user sees of a run's labels, and what bad input gets."""

import json
from dataclasses import replace

import pytest

from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.records.kept import as_parquet, write_step
from tests.command_line import refused, restrain
from tests.evaluation.test_label_quality import RUN

ANSWERS = {"1+1=": "2", "2+2=": "4", "3+3=": "6", "5+5=": "10"}


@pytest.fixture
def run(tmp_path):
    """The run that is counted by hand in tests/evaluation/test_label_quality.py."""
    folder = tmp_path / "run"
    for step in (1, 2):
        write_step(folder, step, as_parquet([group for group in RUN if group.step == step]))
    return folder


@pytest.fixture
def gold(write_jsonl):
    return write_jsonl("gold.jsonl", [{"problem": problem, "answer": answer} for problem, answer in ANSWERS.items()])


def test_numbers_for_programs(run, gold):
    done = restrain("analyze", run, "--gold", gold, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["total"]["reward_accuracy"] == 11 / 16
    assert [row["first"] for row in found["by_window"]] == [1, 2]


def test_exactly_right_is_what_would_vote_for_golds_class(tmp_path, write_jsonl):
    """3.1416 is within evaluation's tolerance of 3.14159, and another class in the vote."""
    (near, *_) = RUN
    answers = ("3.1416", "3.1416", "2", None)
    rollouts = [replace(each, answer=answer) for each, answer in zip(near.rollouts, answers, strict=True)]
    write_step(tmp_path / "run", 1, as_parquet([replace(near, rollouts=tuple(rollouts))]))
    gold = write_jsonl("gold.jsonl", [{"problem": near.prompt, "answer": "3.14159"}])
    lenient, exact = (
        json.loads(restrain("analyze", tmp_path / "run", "--gold", gold, "--json", *words).stdout)
        for words in ((), ("--exact",))
    )
    assert (lenient["exact"], lenient["total"]["rollout_accuracy"]) == (False, 1 / 2)
    assert (exact["exact"], exact["total"]["rollout_accuracy"]) == (True, 0)
    same = write_jsonl("gold.jsonl", [{"problem": near.prompt, "answer": "3927/1250"}])
    found = restrain("analyze", tmp_path / "run", "--gold", same, "--exact")
    assert "label accuracy: the majority is right" in found.stdout
    assert "100.0%" in found.stdout
    assert "right as votes are equal (--exact)" in found.stdout


def test_gold_that_is_tests_cannot_be_exact(run, gold, write_jsonl):
    """Of a whole run or of one prompt of a mixed one: a vote for the class of a test is a vote for nothing."""
    rows = [{"problem": problem, "answers": "code" if problem == "2+2=" else "math"} for problem in ANSWERS]
    flags = {"data.prompt_dataset": str(write_jsonl("prompts.jsonl", rows)), "data.input_key": "problem"}
    for name in ("code", "mixed"):
        resolved = {"answers": {"name": name}, "method": {"name": "restrain"}, "openrlhf": flags}
        (run / "run.json").write_text(json.dumps(resolved))
        assert "is tests that an answer has to pass" in refused("analyze", run, "--gold", gold, "--exact")


def test_gold_that_gives_an_options_place_is_that_option_for_a_vote_too(tmp_path, write_jsonl):
    """As MMLU has it; a vote for the option is exactly right."""
    problem = "Which is the capital of France?"
    rows = write_jsonl("prompts.jsonl", [{"problem": problem, "options": ["Lyon", "Paris", "Nice"]}])
    (near, *_) = RUN
    answers = ("Paris", "Paris", "Lyon", None)
    rollouts = [replace(each, answer=answer) for each, answer in zip(near.rollouts, answers, strict=True)]
    group = replace(near, prompt=problem, prompt_id=text_hash(problem), rollouts=tuple(rollouts))
    write_step(tmp_path / "run", 1, as_parquet([group]))
    flags = {"data.prompt_dataset": str(rows), "data.input_key": "problem"}
    resolved = {"answers": {"name": "choice"}, "method": {"name": "restrain"}, "openrlhf": flags}
    (tmp_path / "run" / "run.json").write_text(json.dumps(resolved))
    for answer in ("B", "1", "Paris"):
        file = write_jsonl("gold.jsonl", [{"problem": problem, "answer": answer}])
        for words in ((), ("--exact",)):
            found = json.loads(restrain("analyze", tmp_path / "run", "--gold", file, "--json", *words).stdout)
            assert found["total"]["rollout_accuracy"] == 1 / 2, (answer, words)


def test_gold_is_joined_by_the_problem_where_the_run_had_a_template(tmp_path, gold, write_jsonl):
    """And by the sidecar's hashes, which are of problems too."""
    folder, template = tmp_path / "run", "Question: {} Answer:"
    texts = [template.format(group.prompt) for group in RUN]
    groups = [
        replace(group, prompt=text, prompt_id=text_hash(text), step=1) for group, text in zip(RUN, texts, strict=True)
    ]
    write_step(folder, 1, as_parquet(groups))
    prompts = write_jsonl("prompts.jsonl", [{"problem": problem} for problem in [*ANSWERS, "9+9="]])
    flags = {"data.prompt_dataset": str(prompts), "data.input_key": "problem", "data.input_template": template}
    (folder / "run.json").write_text(json.dumps({"method": {"name": "restrain"}, "openrlhf": flags}))
    sidecar = [{"prompt_hash": text_hash(problem), "answer": answer} for problem, answer in ANSWERS.items()]
    for file in (gold, write_jsonl("prompts.gold.jsonl", sidecar)):
        found = json.loads(restrain("analyze", folder, "--gold", file, "--json").stdout)
        assert (found["total"]["groups"], found["prompts_without_gold"]) == (5, 1)
        assert found["total"]["label_accuracy"] == 2 / 5


def test_bad_input_is_one_line(run, gold, write_jsonl, tmp_path):
    (tmp_path / "empty").mkdir()
    wrong = write_jsonl("wrong.jsonl", [{"q": "1+1=", "answer": "2"}])
    other = write_jsonl("other.jsonl", [{"problem": "7+7=", "answer": "14"}])
    assert "has no kept rollouts" in refused("analyze", tmp_path / "empty", "--gold", gold)
    assert "Missing option '--gold'" in refused("analyze", run)
    assert "no such file" in refused("analyze", run, "--gold", tmp_path / "absent.jsonl")
    assert "line 1: has none of the columns `problem`, `prompt_hash` and `id`" in refused(
        "analyze", run, "--gold", wrong
    )
    assert "answers none of the 5 prompts that were kept" in refused("analyze", run, "--gold", other)
    assert "has no kept rollouts" in refused("analyze", tmp_path / "absent", "--gold", gold)
    assert not (run / "analysis").exists()
