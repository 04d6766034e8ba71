"""A step is reported with the signals that may end the run: those of the stop rules."""

from types import SimpleNamespace

import pytest

import test_time.training
from restrain_openrlhf.answers import parse_kind
from restrain_openrlhf.records.folder import Completion, RunFolder
from test_time.stopping import StopRules
from test_time.training import train_watched
from tests.test_time.steps import steps

NUMBER = parse_kind({"name": "number"})
# The base model has one answer to half of its prompts: 100 and 100.001 are within the tolerance of 1e-4.
BEFORE = SimpleNamespace(rows=[SimpleNamespace(majority_key=key) for key in ("100", "100001/1000", "7", "8")])


@pytest.mark.parametrize(("rules", "near"), [(StopRules(), [[], [], [], ["KL"]]), (None, [[]] * 4)])
def test_the_stop_rules_signals_come_with_each_step(tmp_path, monkeypatch, rules, near):
    folder = RunFolder(tmp_path / "train")
    folder.path.mkdir()
    folder.metrics.touch()
    folder.mark_completed(Completion(steps=4))

    def trained(_config, on_step, _should_stop):
        for row in steps(4, kl=[0.01, 0.01, 0.01, 0.14]):
            on_step(row, 4)
        return folder

    monkeypatch.setattr(test_time.training, "train", trained)
    config = SimpleNamespace(run_dir=folder.path, answers=NUMBER, openrlhf={"actor.model_name_or_path": "base"})
    heard = []
    train_watched(config, rules, BEFORE, lambda row, _total: heard.append(row))
    assert [[each.name for each in row.watched if each.is_near] for row in heard] == near
    assert [each.start for each in heard[0].watched if each.name == "top answer"] == [0.5] * bool(rules)
