"""Copies of benchmarks for machines without a hub: rows as they are, or problems alone; what is there is kept."""

import json

import datasets
import pytest

from restrain_openrlhf.data.benchmarks import copy_benchmark, copy_problems, load_benchmark
from tests.command_line import restrain

ROWS = [{"problem": "1+1?", "answer": "2", "unique_id": "a/1"}, {"problem": "2+2?", "answer": "4", "unique_id": "a/2"}]


@pytest.fixture
def hub(monkeypatch):
    """A hub with MATH-500 alone; yields what it was asked for."""
    asked = []

    def load_dataset(name, config, split, **options):
        asked.append(name)
        if name != "HuggingFaceH4/MATH-500":
            raise datasets.exceptions.DatasetNotFoundError(f"Dataset {name!r} is a gated dataset on the Hub.")
        return ROWS

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return asked


def test_a_copy_is_the_same_benchmark_without_a_hub(hub, tmp_path):
    path = copy_benchmark("math500", tmp_path)
    assert path == tmp_path / "math500.jsonl"
    fetched = load_benchmark("math500").problems
    hub.clear()
    assert load_benchmark("math500", tmp_path).problems == fetched
    assert copy_benchmark("math500", tmp_path) == path
    assert hub == []


def test_problems_for_test_time_have_no_answers(hub, tmp_path):
    path = copy_problems("math500", tmp_path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows == [{"id": "a/1", "problem": "1+1?"}, {"id": "a/2", "problem": "2+2?"}]
    path.write_text("mine\n")
    assert copy_problems("math500", tmp_path).read_text() == "mine\n"


def test_one_set_that_cannot_be_had_holds_no_other_up(hub, tmp_path):
    done = restrain("data", "benchmarks", "gpqa_diamond,math500", "--out", tmp_path)
    assert done.returncode == 2
    assert "This set is gated: open huggingface.co/datasets/Idavidrein/gpqa" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["math500.jsonl"]


def test_prepare_keeps_what_is_there_if_asked(tmp_path):
    out = tmp_path / "train.jsonl"
    words = ("data", "prepare", "dapo14k", "--out", out, "--keep")
    out.write_text("mine\n")
    done = restrain(*words)
    assert (done.returncode, out.read_text()) == (0, "mine\n")
    # A file that was asked for and is not there is made, which here ends in a refusal.
    assert restrain(*words, "--supervised", out).returncode == 2
