"""One gate: what settings alone can tell is refused alike by whatever shows, renders or starts a run."""

import json

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from restrain_openrlhf.config.this_machine import HostRun
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.errors import ConfigError
from tests.command_line import call, restrain
from tests.config.presets import preset_file

PRESET = "dapo14k/qwen3-4b-base/restrain"
# What a run must not start with, and the words of the reason.
REFUSED = [
    ({"method.kappa": 17}, "penalises even a unanimous group"),
    ({"openrlhf.vllm.num_engines": 0}, "vllm.num_engines is 0"),
    ({"openrlhf.vllm.num_engines": 4}, "Set vllm.num_engines to 8"),
    ({"openrlhf.algo.kl.target": 0.1}, "algo.kl.target"),
    ({"reference": None}, "no reference was given"),
    ({"openrlhf.ckpt.output_dir": "/mnt/work/mine"}, "the run's models would not be in its folder"),
    ({"openrlhf.ckpt.path": "/mnt/work/mine", "openrlhf.ckpt.save_hf": True}, "ckpt.path /mnt/work/mine: the run's"),
    ({"openrlhf.data.apply_chat_template": True}, "so that data.input_template has no effect: OpenRLHF drops"),
    ({"answers": {"name": "text", "read": "tag"}}, "data.input_template asks for a box, in which the kind of answer"),
]


def words(settings):
    return [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]


@pytest.mark.parametrize(("settings", "reason"), REFUSED)
def test_show_and_render_refuse_what_train_refuses(settings, reason, tmp_path):
    with pytest.raises(ConfigError) as of_train:
        HostRun.startable(load_run_config(preset_file(PRESET), settings))
    assert reason in str(of_train.value)
    commands = (
        ("show", PRESET),
        ("show", PRESET, "--memory"),
        ("k8s", "render", PRESET, "--overlay", "8xa100-80g", "--out", tmp_path / "manifests"),
    )
    for command in commands:
        done = restrain(*command, *words(settings))
        assert (done.returncode, reason in " ".join(done.stderr.split())) == (2, True), (command, done.stderr)
    assert list(tmp_path.iterdir()) == []


def test_adapt_checks_what_was_typed_before_it_looks_for_a_model(tmp_path, monkeypatch):
    from test_time import adapt, cli

    asked = []
    monkeypatch.setattr(adapt, "ensure_model", asked.append)
    problems = tmp_path / "problems.jsonl"
    good = ("--prompts", problems, "--method", "restrain")
    problems.write_text("".join(f'{{"id": {n}, "problem": "What is {n} + 1?"}}\n' for n in range(32)))
    for wrong in (
        ("--prompts", tmp_path / "absent.csv", "--method", "restrain"),
        ("--prompts", problems, "--method", "restrian"),
        (*good, "--set", "openrlhf.vllm.num_engines=0"),
        (*good, "--set", "method.kappa=1000"),
    ):
        done = call(cli.main, "adapt", "--model", "some/model", *wrong, "--out", tmp_path / "out")
        assert done.returncode == 2, done.stderr
    assert asked == []
