"""`restrain view`: what bad input gets, and the command as a user runs it."""

import pytest

from restrain_openrlhf.records.kept import step_file
from tests.command_line import restrain
from tests.commands.view.runs import boxed, scored_group, small_run, write_run

REFUSED = [
    (("absent",), "has no kept rollouts"),
    (("there.html",), "has no kept rollouts"),
    (("empty",), "has no kept rollouts"),
    (("damaged",), "run.json: is not valid JSON"),
    (("run", "--gold", "absent.jsonl"), "no such file"),
    (("run", "--gold", "other.jsonl"), "answers none of the 3 prompts"),
    (("run", "--gold", "bad.jsonl"), "line 1: answer"),
    (("run", "--out", "empty"), "is not a file that can be written"),
    (("run", "--out", "there.html/view.html"), "is not a folder"),
]


@pytest.mark.parametrize(("words", "said"), REFUSED, ids=[" ".join(words) for words, _ in REFUSED])
def test_what_cannot_be_viewed_is_refused(tmp_path, write_jsonl, words, said):
    small_run(tmp_path / "run")
    (small_run(tmp_path / "damaged") / "run.json").write_text("[1]")
    (tmp_path / "empty").mkdir()
    (tmp_path / "there.html").write_text("mine")
    write_jsonl("other.jsonl", [{"problem": "another", "answer": "1"}])
    write_jsonl("bad.jsonl", [{"problem": "p"}])
    done = restrain("view", *words, cwd=tmp_path)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert (tmp_path / "there.html").read_text() == "mine"


def test_the_page_is_written_into_the_run_and_steps_that_cannot_be_read_are_named(tmp_path):
    run = small_run(tmp_path / "run")
    step_file(run, 2).write_bytes(b"no parquet")
    done = restrain("view", run)
    first, second = done.stdout.splitlines()
    assert first.startswith(f"Left out: {step_file(run, 2)}: is not a complete Parquet file")
    assert second.startswith(f"{run / 'rollouts.html'}: 6 groups, ")
    write_run(run, [scored_group(2, 0, "new", boxed("1"))])
    assert restrain("view", run).stdout.startswith(f"{run / 'rollouts.html'}: 7 groups, ")
