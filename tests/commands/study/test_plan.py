"""Which runs a study has, and what it refuses before anything starts."""

import pytest

from restrain_openrlhf.commands.study import plan_study
from restrain_openrlhf.errors import ConfigError

EVALUATED = "openrlhf: {eval.dataset: held.jsonl, eval.steps: 5, data.label_key: answer}"


@pytest.fixture
def config(tmp_path):
    def config(name, method="{name: ttrl}", flags=EVALUATED, folder="here"):
        path = tmp_path / folder / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"run_dir: elsewhere\nmethod: {method}\n{flags}\n")
        return path

    return config


def test_every_configuration_runs_with_every_seed_and_all_methods_come_before_the_next_seed(config, tmp_path):
    runs = plan_study([config("a"), config("b")], 2, tmp_path / "out")
    assert [run.label for run in runs] == ["here/a seed 42", "here/b seed 42", "here/a seed 43", "here/b seed 43"]
    assert [run.config.openrlhf["train.seed"] for run in runs] == [42, 42, 43, 43]
    assert len({run.config.run_dir for run in runs}) == 4
    assert runs[0].config.run_dir == tmp_path / "out" / "here" / "a" / "seed-42"
    assert all(run.config.evaluate_first for run in runs)


@pytest.mark.parametrize("key", ["run_dir", "openrlhf.train.seed", "evaluate_first"])
def test_an_override_of_what_a_study_sets_is_refused(config, tmp_path, key):
    with pytest.raises(ConfigError, match=f"--set {key}: a study sets it for each run"):
        plan_study([config("a")], 1, tmp_path / "out", {key: 7})


def test_two_configurations_of_one_name_are_refused(config, tmp_path):
    with pytest.raises(ConfigError, match="2 of the configurations are called here/a"):
        plan_study([config("a"), config("a")], 1, tmp_path)


@pytest.mark.parametrize("missing", ["eval.dataset", "eval.steps", "data.label_key"])
def test_a_configuration_without_held_out_problems_is_refused(config, tmp_path, missing):
    kept = {"eval.dataset": "held.jsonl", "eval.steps": 5, "data.label_key": "answer"}
    del kept[missing]
    flags = f"openrlhf: {{{', '.join(f'{name}: {value}' for name, value in kept.items())}}}"
    with pytest.raises(ConfigError, match=f"openrlhf has no {missing}, and a study compares"):
        plan_study([config("a", flags=flags)], 1, tmp_path)
