"""A run's folder belongs to one run at a time, and to one configuration for good."""

import json
import os
from pathlib import Path

import pytest

from restrain_openrlhf.answers import parse_kind
from restrain_openrlhf.config.yaml_file import (
    Agent,
    EngineLimits,
    HookConfig,
    KeepRollouts,
    Key,
    RunConfig,
    load_hook_config,
)
from restrain_openrlhf.errors import ConfigError, RunError
from restrain_openrlhf.evaluation.job import Request
from restrain_openrlhf.method import parse_settings
from restrain_openrlhf.records.folder import Completion, RunFolder, RunRecord, model_of
from restrain_openrlhf.records.inputs import claim_checkpoints, contents
from tests.data.test_identity import sha256sum


def config(tmp_path, **method):
    return RunConfig(run_dir=tmp_path / "run", method=parse_settings({"name": "restrain", **method}))


def test_the_hook_reads_what_the_run_resolved(tmp_path):
    folder, run = RunFolder(tmp_path / "run"), config(tmp_path, kappa=5, sigma=float("inf"))
    folder.claim(RunRecord(run, {"actor.adam.lr": 1e-6}))
    assert load_hook_config(folder.hook_config).method == run.method


OTHER_THAN_DEFAULT = {
    "reference": Path("/ref.jsonl"),
    "reference_n": 32,
    "reference_sampling": "any",
    "metrics": Path("/metrics.jsonl"),
    "steps": 7,
    "seeded_rollouts": True,
    "answers": parse_kind({"name": "mixed", "kinds": {"math": {}}}),
    "answer_rows": Path("/data/train.jsonl"),
    "agent": Agent(path=Path(__file__), turns="all", tag="final"),
    "evaluate_first": True,
    "logprob_gap_limit": None,
    "missing_limit": 0.75,
    "own_old_log_probs": True,
    "weight_digests": True,
    "engine": EngineLimits(max_num_seqs=256),
    "rollouts": KeepRollouts(keep="none"),
}


def test_every_setting_of_a_run_reaches_its_hook(tmp_path):
    assert {"method", *OTHER_THAN_DEFAULT} == set(HookConfig.model_fields)
    folder, run = RunFolder(tmp_path / "run"), config(tmp_path).model_copy(update=OTHER_THAN_DEFAULT)
    folder.claim(RunRecord(run, {}))
    read = load_hook_config(folder.hook_config)
    assert {name: getattr(read, name) for name in OTHER_THAN_DEFAULT} == OTHER_THAN_DEFAULT


def test_another_run_is_refused_naming_the_difference(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.claim(RunRecord(config(tmp_path), {"actor.adam.lr": 1e-6, "logger.tensorboard_dir": "a"}))
    folder.claim(RunRecord(config(tmp_path), {"actor.adam.lr": 1e-6, "logger.tensorboard_dir": "b"}))
    with pytest.raises(RunError, match=r"method\.kappa = 3\.0, but this run has 5\.0"):
        folder.claim(RunRecord(config(tmp_path, kappa=5), {"actor.adam.lr": 1e-6}))
    with pytest.raises(RunError, match=r"openrlhf\.actor\.adam\.lr"):
        folder.claim(RunRecord(config(tmp_path), {"actor.adam.lr": 1e-5}))


def test_two_processes_cannot_train_in_one_folder(tmp_path):
    folder = RunFolder(tmp_path / "run")
    lock = folder.lock()
    with pytest.raises(RunError, match="another process"):
        folder.lock()
    os.close(lock)
    os.close(folder.lock())


def test_a_run_may_come_back_with_its_changeable_keys_changed_and_no_others(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.claim(RunRecord(config(tmp_path), {}))
    for name, value in OTHER_THAN_DEFAULT.items():
        changed = config(tmp_path).model_copy(update={name: value})
        if name in HookConfig.keys(Key.CHANGEABLE):
            folder.claim(RunRecord(changed, {}))
            folder.claim(RunRecord(config(tmp_path), {}))
        else:
            with pytest.raises(RunError, match=name):
                folder.claim(RunRecord(changed, {}))
    assert HookConfig.keys(Key.CHANGEABLE) == {
        "logprob_gap_limit", "missing_limit", "own_old_log_probs", "weight_digests", "engine", "rollouts",
    }  # fmt: skip


@pytest.fixture
def made(tmp_path):
    """A run's own model, prompts, held-out problems and reference, and its flags."""
    model = tmp_path / "model"
    model.mkdir()
    for name, text in {"config.json": "{}", "model.safetensors": "weights", "tokenizer.json": "{}"}.items():
        (model / name).write_text(text)
    (tmp_path / "prompts.jsonl").write_text("".join(f'{{"problem": "{at} + 1"}}\n' for at in range(64)))
    (tmp_path / "held.jsonl").write_text('{"problem": "9 + 9", "answer": "18"}\n')
    (tmp_path / "ref.jsonl").write_text('{"n": 16}\n')
    flags = {
        "actor.model_name_or_path": str(model),
        "data.prompt_dataset": str(tmp_path / "prompts.jsonl"),
        "eval.dataset": str(tmp_path / "held.jsonl"),
        "ckpt.path": str(tmp_path / "ckpt"),
        "ckpt.load_enable": True,
        "ckpt.save_steps": 2,
    }
    return RunFolder(tmp_path / "run"), config(tmp_path).model_copy(update={"reference": tmp_path / "ref.jsonl"}), flags


FILES = {
    "data.prompt_dataset": "prompts.jsonl",
    "eval.dataset": "held.jsonl",
    "reference": "ref.jsonl",
    "actor.model_name_or_path/config.json": "model/config.json",
    "actor.model_name_or_path/model.safetensors": "model/model.safetensors",
    "actor.model_name_or_path/tokenizer.json": "model/tokenizer.json",
}


def test_a_run_keeps_the_digests_of_what_it_is_made_from(made, tmp_path):
    folder, run, flags = made
    folder.claim(RunRecord(run, flags))
    kept = json.loads(folder.resolved.read_text())["contents"]
    assert kept.pop("answer extractor").startswith("version ")
    assert kept == {name: f"sha256:{sha256sum(tmp_path / path)}" for name, path in FILES.items()}
    folder.claim(RunRecord(run, flags))


@pytest.mark.parametrize(("name", "path"), FILES.items())
def test_other_content_under_the_same_path_is_refused(made, tmp_path, name, path):
    """Of a run that has ended, too: it must not be handed back as one of the new content."""
    folder, run, flags = made
    folder.claim(RunRecord(run, flags))
    folder.mark_completed(Completion(steps=1))
    was, before = sha256sum(tmp_path / path), folder.resolved.read_bytes()
    content = (tmp_path / path).read_text()
    (tmp_path / path).write_text("".join(f'{{"problem": "other {at}"}}\n' for at in range(40)))
    with pytest.raises(RunError) as refused:
        folder.claim(RunRecord(run, flags))
    assert f"- {name} was sha256:{was} and is sha256:{sha256sum(tmp_path / path)} now ({tmp_path / path})" in str(
        refused.value
    )
    assert "choose another run_dir" in str(refused.value)
    assert folder.resolved.read_bytes() == before
    (tmp_path / path).write_text(content)
    folder.claim(RunRecord(run, flags))


def test_every_change_is_named_and_what_came_or_went_too(made, tmp_path):
    folder, run, flags = made
    folder.claim(RunRecord(run, flags))
    (tmp_path / "prompts.jsonl").write_text('{"problem": "other"}\n')
    (tmp_path / "model" / "model.safetensors").rename(tmp_path / "model" / "model-1-of-1.safetensors")
    with pytest.raises(RunError) as refused:
        folder.claim(RunRecord(run, flags))
    told = str(refused.value)
    assert "- data.prompt_dataset was sha256:" in told
    assert "- actor.model_name_or_path/model-1-of-1.safetensors was not there and is sha256:" in told
    assert told.count("model.safetensors was sha256:") == 1
    assert "is not there now" in told


def test_answers_read_by_another_version_make_another_run(made, monkeypatch):
    folder, run, flags = made
    folder.claim(RunRecord(run, flags))
    monkeypatch.setattr(type(run.answers), "version", "2")
    with pytest.raises(RunError, match=r"answer extractor was version \d+ and is version 2 now"):
        folder.claim(RunRecord(run, flags))


def test_the_hooked_command_of_openrlhf_does_not_go_on_with_other_content_either(made, tmp_path):
    """It has no run folder: its record is beside the checkpoints that it goes on from."""
    _, run, flags = made
    claim_checkpoints(run, flags)
    (tmp_path / "prompts.jsonl").write_text('{"problem": "other"}\n')
    claim_checkpoints(run, flags)  # nothing was trained yet
    (tmp_path / "ckpt" / "_actor").mkdir()
    (tmp_path / "ckpt" / "_actor" / "latest").write_text("global_step2")
    (tmp_path / "ref.jsonl").write_text('{"n": 32}\n')
    with pytest.raises(RunError, match="- reference was sha256:"):
        claim_checkpoints(run, flags)
    claim_checkpoints(run, {**flags, "ckpt.load_enable": False})


def test_another_content_of_the_agents_file_makes_another_run(made, tmp_path):
    folder, run, flags = made
    (tmp_path / "their_agent.py").write_text("TURNS = 2\n")
    run = run.model_copy(update={"agent": Agent(path=tmp_path / "their_agent.py")})
    (tmp_path / "ckpt" / "_actor").mkdir(parents=True)
    folder.claim(RunRecord(run, flags))
    claim_checkpoints(run, flags)
    (tmp_path / "ckpt" / "_actor" / "latest").write_text("global_step2")
    (tmp_path / "their_agent.py").write_text("TURNS = 3\n")
    with pytest.raises(RunError, match=r"- agent was their_agent.py \w+ and is their_agent.py \w+ now"):
        folder.claim(RunRecord(run, flags))
    with pytest.raises(RunError, match="- agent was"):
        claim_checkpoints(run, flags)


def test_checkpoints_without_a_record_are_resumed_and_it_is_said(made, tmp_path, capsys):
    """Such as those that OpenRLHF wrote before the hook was switched on."""
    _, run, flags = made
    (tmp_path / "ckpt" / "_actor").mkdir(parents=True)
    (tmp_path / "ckpt" / "_actor" / "latest").write_text("global_step2")
    claim_checkpoints(run, flags)
    assert "these checkpoints have no contents.json" in capsys.readouterr().err


def test_of_a_hub_set_what_the_kind_reads_is_compared_and_its_gold_in_evaluation_alone(tmp_path, monkeypatch):
    run = config(tmp_path)
    text, number = parse_kind({"name": "text"}), parse_kind({"name": "number"})
    rows = [{"problem": "1 + 1", "unit": "km", "aliases": ["two"]}]
    monkeypatch.setattr("restrain_openrlhf.data.sources.load_dataset", lambda *_given, **_options: rows)

    def changed(kind, name, **column):
        flags = {name: "owner/set", "data.input_key": "problem"}
        before = contents(run.model_copy(update={"answers": kind}), flags)
        with monkeypatch.context() as now:
            now.setitem(rows[0], *next(iter(column.items())))
            return contents(run.model_copy(update={"answers": kind}), flags) != before

    assert changed(number, "data.prompt_dataset", unit="m")
    assert not changed(text, "data.prompt_dataset", unit="m")
    assert not changed(text, "data.prompt_dataset", aliases=["2"])
    assert changed(text, "eval.dataset", aliases=["2"])


def test_an_adapter_is_not_taken_for_a_model(tmp_path):
    for name in ("config.json", "adapter_config.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(ConfigError, match=r"holds a LoRA adapter, but a full model is needed.*with peft"):
        contents(config(tmp_path), {"actor.model_name_or_path": str(tmp_path)})


def test_a_finished_runs_folder_names_the_model_that_the_run_gives(tmp_path):
    folder = RunFolder(tmp_path)
    assert model_of(str(tmp_path)) == str(tmp_path)
    folder.mark_completed(Completion(steps=4))
    asked = Request.model_validate({"model": str(tmp_path), "benchmarks": "aime24", "out": tmp_path / "evaluation"})
    assert asked.model == str(tmp_path / "model")
    folder.mark_completed(Completion(steps=4, stopped="kl", chosen_step=2, chosen_model="/r/global_step2_hf"))
    assert model_of(str(tmp_path)) == "/r/global_step2_hf"
