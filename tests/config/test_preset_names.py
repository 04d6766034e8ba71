"""Configurations by name: every preset is found, and a word that names nothing says what it may have meant."""

import re

import pytest
from typer.testing import CliRunner

from restrain_openrlhf.commands.main import app
from restrain_openrlhf.config.command_line import find_config, preset_names
from restrain_openrlhf.config.documents import own_path
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.errors import ConfigError
from tests.conftest import ROOT

NAME = "dapo14k/qwen3-4b-base/restrain"
MODEL = "restrain_openrlhf/data/demo_tasks/models/addition"


def test_every_preset_is_found_by_its_name_from_anywhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    files = {path for path in (ROOT / "configs").rglob("*.yaml") if not path.name.startswith("_")}
    assert {find_config(name) for name in preset_names()} == files
    assert find_config(NAME) == ROOT / "configs" / "dapo14k" / "qwen3-4b-base" / "restrain.yaml"
    assert load_run_config(find_config("ablations/sigma-0.5")).method.sigma == 0.5


def test_the_command_lists_them_one_a_line():
    shown = CliRunner().invoke(app, ["presets"]).output
    assert [line.split()[0] for line in shown.splitlines()] == preset_names() == sorted(preset_names())
    assert all(re.search(r"  +(\d+ GPUs?(, \d+ h)?|CPU or GPU)  +\w.*\.$", line) for line in shown.splitlines())
    on_the_cpu = [line.split()[0] for line in shown.splitlines() if "  CPU or GPU  " in line]
    assert on_the_cpu == [name for name in preset_names() if name.startswith("cpu/")]


def test_a_part_of_the_name_chooses_presets_and_one_that_none_has_is_refused():
    shown = CliRunner().invoke(app, ["presets", "24gb/qwen3-0.6b"]).output
    about = "RESTRAIN with Qwen3-0.6B-Base on DAPO-14k-MATH, on one GPU of 24 GB: all parameters."
    assert re.split(" {2,}", shown.strip()) == ["one_gpu/24gb/qwen3-0.6b-base", "1 GPU, 12 h", about]
    refused = CliRunner().invoke(app, ["presets", "qwen9"])
    assert "No preset has 'qwen9' in its name" in str(refused.exception)


def test_a_file_goes_before_a_preset_of_that_name_but_a_folder_does_not(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / NAME
    path.mkdir(parents=True)
    assert find_config(NAME) == ROOT / "configs" / f"{NAME}.yaml"
    path.rmdir()
    path.write_text("mine")
    assert find_config(NAME).read_text() == "mine"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("dapo14k/qwen3-4b-base/restrian", f"Did you mean '{NAME}'"),
        (f"configs/{NAME}.yaml", f"Did you mean '{NAME}'"),
        ("dapo14k/qwen3-4b-base", "qwen3-4b-base/"),
        ("nothing", "no preset of this name. `restrain presets` lists all"),
    ],
)
def test_a_word_that_names_nothing_gets_the_nearest_names(monkeypatch, tmp_path, word, hint):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as error:
        find_config(word)
    assert str(error.value).startswith(f"{word}: no such file, and no preset of this name.")
    assert hint in str(error.value)


def test_the_packages_own_model_is_found_where_the_package_lies(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert own_path(MODEL) == str(ROOT / MODEL)
    config = load_run_config(find_config("cpu/demo_addition"))
    assert config.openrlhf["actor.model_name_or_path"] == str(ROOT / MODEL)
    for other in ("Qwen/Qwen3-4B-Base", "restrain_openrlhf/absent", "runs/mine/model"):
        assert own_path(other) == other
    (tmp_path / MODEL).mkdir(parents=True)
    assert own_path(MODEL) == MODEL
