"""A run's folder belongs to one run at a time, and to one configuration for good."""

import os
from pathlib import Path

import pytest

from restrain_openrlhf.config.engine import EngineLimits
from restrain_openrlhf.config.kept_rollouts import KeepRollouts
from restrain_openrlhf.config.mlflow import MlflowSettings
from restrain_openrlhf.config.yaml_file import HookConfig, Key, RunConfig, load_hook_config
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.method import parse_settings
from restrain_openrlhf.run.folder import RunFolder


def config(tmp_path, **method):
    return RunConfig(run_dir=tmp_path / "run", method=parse_settings({"name": "restrain", **method}))


def test_the_hook_reads_what_the_run_resolved(tmp_path):
    folder, run = RunFolder(tmp_path / "run"), config(tmp_path, kappa=5, sigma=float("inf"))
    folder.claim(run, {"actor.adam.lr": 1e-6})
    assert load_hook_config(folder.hook_config).method == run.method


OTHER_THAN_DEFAULT = {
    "reference": Path("/ref.jsonl"),
    "reference_n": 32,
    "metrics": Path("/metrics.jsonl"),
    "steps": 7,
    "seeded_rollouts": True,
    "evaluate_first": True,
    "fill_last_batch": False,
    "service": "http://reward:8000",
    "logprob_gap_limit": None,
    "engine": EngineLimits(max_num_seqs=256),
    "rollouts": KeepRollouts(keep="none"),
    "mlflow": MlflowSettings(tracking_uri="http://mlflow:5000"),
}


def test_every_setting_of_a_run_reaches_its_hook(tmp_path):
    assert {"method", *OTHER_THAN_DEFAULT} == set(HookConfig.model_fields)
    folder, run = RunFolder(tmp_path / "run"), config(tmp_path).model_copy(update=OTHER_THAN_DEFAULT)
    folder.claim(run, {})
    read = load_hook_config(folder.hook_config)
    assert {name: getattr(read, name) for name in OTHER_THAN_DEFAULT} == OTHER_THAN_DEFAULT


def test_a_run_that_was_stopped_by_the_gaps_limit_goes_on_with_another(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.claim(config(tmp_path), {})
    folder.claim(config(tmp_path).model_copy(update={"logprob_gap_limit": None}), {})
    assert load_hook_config(folder.hook_config).logprob_gap_limit is None


def test_the_same_run_may_come_back_and_log_elsewhere(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.claim(config(tmp_path), {"actor.adam.lr": 1e-6, "logger.tensorboard_dir": "a"})
    folder.claim(config(tmp_path), {"actor.adam.lr": 1e-6, "logger.tensorboard_dir": "b"})


def test_another_run_is_refused_naming_the_difference(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.claim(config(tmp_path), {"actor.adam.lr": 1e-6})
    with pytest.raises(RunError, match=r"method\.kappa = 3\.0; this one has 5\.0"):
        folder.claim(config(tmp_path, kappa=5), {"actor.adam.lr": 1e-6})
    with pytest.raises(RunError, match=r"openrlhf\.actor\.adam\.lr"):
        folder.claim(config(tmp_path), {"actor.adam.lr": 1e-5})


def test_another_number_of_steps_is_another_run(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.claim(config(tmp_path).model_copy(update={"steps": 3}), {})
    assert load_hook_config(folder.hook_config).steps == 3
    with pytest.raises(RunError, match=r"steps = 3; this one has 4"):
        folder.claim(config(tmp_path).model_copy(update={"steps": 4}), {})
    with pytest.raises(RunError, match=r"steps = 3; this one has None"):
        folder.claim(config(tmp_path), {})


def test_two_processes_cannot_train_in_one_folder(tmp_path):
    folder = RunFolder(tmp_path / "run")
    lock = folder.lock()
    with pytest.raises(RunError, match="another process"):
        folder.lock()
    os.close(lock)
    os.close(folder.lock())


def test_a_run_may_go_on_with_its_groups_scored_elsewhere(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.claim(config(tmp_path), {})
    folder.claim(config(tmp_path).model_copy(update={"service": "http://reward:8000"}), {})
    assert load_hook_config(folder.hook_config).service == "http://reward:8000"


def test_a_run_may_come_back_with_its_changeable_keys_changed_and_no_others(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.claim(config(tmp_path), {})
    for name, value in OTHER_THAN_DEFAULT.items():
        changed = config(tmp_path).model_copy(update={name: value})
        if name in HookConfig.keys(Key.CHANGEABLE):
            folder.claim(changed, {})
            folder.claim(config(tmp_path), {})
        else:
            with pytest.raises(RunError, match=name):
                folder.claim(changed, {})
    assert HookConfig.keys(Key.CHANGEABLE) == {"service", "logprob_gap_limit", "engine", "rollouts", "mlflow"}
