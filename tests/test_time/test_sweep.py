"""A sweep: every set on its own, those that fail told in the end, one table of what there is."""

import csv
from contextlib import nullcontext

import pytest

import test_time.adapt as module
from restrain_openrlhf.errors import ConfigError, DataError, RunError
from restrain_openrlhf.records.collapse import Collapse, Signal
from test_time.adapt import AdaptListener, sweep
from test_time.adaptation import Adaptation
from test_time.problems import Source
from tests.test_time.outcomes import comparison, outcome, score


def jobs(tmp_path, *names):
    return [Adaptation("base", Source(f"{name}.jsonl"), tmp_path / name) for name in names]


def listening(_name):
    return nullcontext(AdaptListener())


def table(tmp_path):
    with (tmp_path / "sweep.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_one_table_over_all_sets(tmp_path, monkeypatch):
    scores = (score(), score("adapted model", n=16), score(benchmark="math500"))
    made = {
        "one": outcome(name="one", scores=scores, comparison=comparison()),
        "two": outcome(name="two", collapse=Collapse(8, Signal.VOTES, 9)),
    }
    monkeypatch.setattr(module, "adapt", lambda job, _listener: made[job.problems.name])
    assert sweep(jobs(tmp_path, "one", "two"), tmp_path, listening) == list(made.values())
    rows = table(tmp_path)
    assert [(row["set"], row["policy"], row["maj@n"], row["collapse step"]) for row in rows] == [
        ("one", "base model", "75.0%", "–"),
        ("one", "adapted model", "75.0%", "–"),
        ("two", "–", "–", "8"),
    ]
    assert [(row["answers right"], row["base vote right"]) for row in rows] == [("75.0%", "50.0%")] * 2 + [("–", "–")]
    assert "2 test sets, each from the same base model" in (tmp_path / "sweep.html").read_text()


def test_a_set_that_fails_does_not_stop_the_others(tmp_path, monkeypatch):
    def adapt(job, _listener):
        if job.problems.name == "bad":
            raise DataError("bad.jsonl: no such file.")
        return outcome(name=job.problems.name)

    monkeypatch.setattr(module, "adapt", adapt)
    with pytest.raises(RunError, match=r"1 of 3 sets failed; the others are in .*\nbad: bad.jsonl: no such file"):
        sweep(jobs(tmp_path, "one", "bad", "two"), tmp_path, listening)
    assert [row["set"] for row in table(tmp_path)] == ["one", "two"]


def test_two_sets_of_one_name_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="Two of the sets are called 'one'"):
        sweep(jobs(tmp_path, "one", "one"), tmp_path, listening)
