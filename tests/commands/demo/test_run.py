"""What the demo says that it does: in a new folder, and in one where it was finished before. Nothing is sampled."""

from types import SimpleNamespace

import pytest

from restrain_openrlhf.commands.demo import run
from restrain_openrlhf.commands.demo.run import train_folder
from restrain_openrlhf.records.folder import Completion, RunFolder
from tests.command_line import restrain
from tests.commands.demo.test_report import accuracy


@pytest.fixture
def parts(monkeypatch, tmp_path):
    """Each part leaves its file, and does nothing else."""

    def train(config, _on_step):
        folder = RunFolder(config.run_dir)
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.mark_completed(Completion(steps=40, stopped=None))
        return folder

    monkeypatch.setattr(run, "_sample", lambda *given: given[3].touch())
    monkeypatch.setattr(run, "train", train)
    monkeypatch.setattr(run, "load_reference", lambda _path: SimpleNamespace(rows=[1]))
    monkeypatch.setattr(run, "accuracy", lambda *_given: accuracy(0.5))
    monkeypatch.setattr(run, "read_steps", lambda _path: [SimpleNamespace(votes={"top_answer_share": 0.1})])
    monkeypatch.setattr(run, "write_report", lambda out, _task: out / "report.html")
    return tmp_path / "demo"


def said(out):
    done = restrain("demo", "--out", out)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_finished_demo_says_that_nothing_is_trained_again(parts):
    first = said(parts)
    assert "1 of 8: restrain: the frozen model votes on every prompt\n" in first
    assert "3 of 8: restrain: training, beginning with Ray and vLLM" in first
    assert "5 of 8: ttrl: the frozen model votes on every prompt (what is in reference.jsonl is kept)" in first
    assert "Nothing was trained" not in first
    again = said(parts)
    assert "beginning with Ray" not in again
    assert again.count("training is finished") == 2
    assert "4 of 8: restrain: held-out accuracy after (what is in after.jsonl is kept)" in again
    assert "Nothing was trained: this demo was finished before. To train again, choose another --out." in again


def test_a_method_that_is_not_trained_yet_is_trained(parts):
    said(parts)
    RunFolder(train_folder(parts, "ttrl")).completed.unlink()
    again = said(parts)
    assert "restrain: training is finished" in again
    assert "ttrl: training, beginning with Ray" in again
    assert "Nothing was trained" not in again


def test_a_folder_of_another_task_is_refused_and_keeps_its_files(parts):
    said(parts)
    before = {path: path.read_bytes() for path in parts.rglob("*") if path.is_file()}
    done = restrain("demo", "--task", "premise", "--out", parts)
    assert done.returncode == 2
    assert f"{parts}: holds a demo with other problems" in done.stderr
    assert "Choose another --out, or that task." in done.stderr
    assert {path: path.read_bytes() for path in parts.rglob("*") if path.is_file()} == before
    assert "Nothing was trained" in said(parts)
