"""`restrain view`: what bad input gets, and the command as a user runs it."""

import json

from restrain_openrlhf.records.kept import step_file
from tests.commands import refused, restrain
from tests.view.runs import boxed, scored_group, small_run, write_run

GOLD = [{"problem": "What is \\(2 + 3\\)?", "answer": "5"}]


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    assert "no such folder. Give a run's folder" in refused("view", tmp_path / "absent")
    assert "is a file. Give a run's folder" in refused("view", tmp_path / "file")
    assert "has no kept rollouts" in refused("view", tmp_path)


def test_gold_that_cannot_be_used_is_refused(tmp_path, write_jsonl):
    run = small_run(tmp_path / "run")
    assert "no such file" in refused("view", run, "--gold", tmp_path / "absent.jsonl")
    other = write_jsonl("other.jsonl", [{"problem": "another", "answer": "1"}])
    assert "has no answer to any of the 3 prompts" in refused("view", run, "--gold", other)
    assert "line 1: answer" in refused("view", run, "--gold", write_jsonl("bad.jsonl", [{"problem": "p"}]))


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    assert "is a folder" in refused("view", small_run(tmp_path / "run"), "--out", tmp_path)


def test_a_damaged_record_of_the_run_is_refused(tmp_path):
    run = small_run(tmp_path)
    (run / "run.json").write_text("{")
    assert "run.json: is no JSON" in refused("view", run)


def test_a_reference_that_is_gone_is_said(tmp_path):
    run = small_run(tmp_path / "run")
    (run / "run.json").write_text(json.dumps({"reference": str(tmp_path / "gone.jsonl")}))
    done = restrain("view", run, "--out", tmp_path / "view.html")
    assert done.returncode == 0, done.stderr
    assert "gone.jsonl, is not there to compare with" in (tmp_path / "view.html").read_text()


def test_it_says_what_it_wrote(tmp_path, write_jsonl):
    run, out = small_run(tmp_path / "run"), tmp_path / "view.html"
    done = restrain("view", run, "--out", out, "--gold", write_jsonl("gold.jsonl", GOLD))
    assert done.stdout.startswith(f"{out}: 9 groups, ")
    assert "Gold has 1 of 3 prompts." in out.read_text()


def test_the_page_of_a_run_that_went_on_takes_the_place_of_the_earlier_one(tmp_path):
    run = small_run(tmp_path)
    assert restrain("view", run).stdout.startswith(f"{run / 'view.html'}: 9 groups, ")
    write_run(run, [scored_group(4, 0, "new", boxed("1"))])
    assert restrain("view", run).stdout.startswith(f"{run / 'view.html'}: 10 groups, ")


def test_a_damaged_step_is_named(tmp_path):
    run = small_run(tmp_path)
    step_file(run, 2).write_bytes(b"no parquet")
    assert "step-000002.parquet: is no whole Parquet file" in refused("view", run)
