"""Every preset means what is written in it, OpenRLHF's own parser takes it, and what it names is there."""

import math
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from restrain_openrlhf.answers import MATHEMATICS
from restrain_openrlhf.config.checks import refuse_settings
from restrain_openrlhf.config.host_flags import host_flags, parse, to_arguments
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.evaluation.job import TEMPLATES, render, worded
from tests.config.presets import CONFIGS, REPRESENTATIVES, command, golden_file, preset_file, presets
from tests.conftest import ROOT

NAMES = presets()


def written(path: Path) -> dict:
    """The file over the one that it extends, read with PyYAML alone."""
    own = yaml.safe_load(path.read_text(encoding="utf-8"))
    base = yaml.safe_load((path.parent / own.pop("extends")).read_text(encoding="utf-8")) if "extends" in own else {}
    assert "extends" not in base, "a preset extends one file"
    return {**base, **own, **{block: {**base.get(block, {}), **own.get(block, {})} for block in ("method", "openrlhf")}}


def parsed(name: str) -> dict:
    """OpenRLHF's flags under their dotted names, as its own parser reads the command."""
    return vars(parse(to_arguments(host_flags(load_run_config(preset_file(name))))))


def reads_as(value, found):
    """YAML has 1e-6 as text."""
    return found == (float(value) if isinstance(found, float) else value)


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_the_command_of_a_preset_is_the_golden_one(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert command(name) == golden_file(name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_openrlhfs_parser_takes_the_command_and_every_value_is_as_written(name):
    document, flags = written(preset_file(name)), parsed(name)
    assert {key: flags[key] for key, value in document["openrlhf"].items() if not reads_as(value, flags[key])} == {}


@pytest.mark.parametrize("name", NAMES)
def test_the_method_and_the_runs_own_settings_are_as_written(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    document, config = written(preset_file(name)), load_run_config(preset_file(name))
    assert {key: getattr(config.method, key) for key in document["method"]} == document["method"]
    own = {key: value for key, value in document.items() if key not in ("method", "openrlhf")}
    paths = {key: ROOT / own[key] for key in ("run_dir", "reference") if key in own}
    assert {key: as_in_yaml(getattr(config, key)) for key in own} == {**own, **paths}


def as_in_yaml(value: object) -> object:
    """A block of keys as the mapping that it was read from."""
    return value.model_dump(exclude_unset=True) if isinstance(value, BaseModel) else value


@pytest.mark.parametrize("name", NAMES)
def test_the_hook_finds_no_contradiction_and_batches_come_out_even(name):
    config, flags = load_run_config(preset_file(name)), parsed(name)
    refuse_settings(config, flags)
    rollouts = flags["rollout.batch_size"] * flags["rollout.n_samples_per_prompt"]
    assert rollouts % flags["train.batch_size"] == 0, "an optimizer step would mix rollout batches"
    gpus = flags["actor.num_nodes"] * flags["actor.num_gpus_per_node"]
    assert flags["train.batch_size"] % (flags["train.micro_batch_size"] * gpus) == 0


# The models' max_position_embeddings.
CONTEXTS = {
    "Qwen/Qwen2.5-Math-1.5B": 4096,
    "Qwen/Qwen2.5-Math-7B": 4096,
    "Qwen/Qwen3-0.6B-Base": 32768,
    "Qwen/Qwen3-1.7B-Base": 32768,
    "Qwen/Qwen3-4B-Base": 32768,
    "OctoThinker/OctoThinker-8B-Hybrid-Base": 131072,
    "meta-llama/Llama-3.1-8B-Instruct": 131072,
    "meta-llama/Llama-3.2-3B-Instruct": 131072,
}


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("cpu/")])
def test_prompt_and_response_are_within_the_models_context(name):
    flags = parsed(name)
    room = flags["data.max_len"] - flags["rollout.max_new_tokens"]
    assert 1024 <= room < flags["data.max_len"] <= CONTEXTS[flags["actor.model_name_or_path"]]


@pytest.mark.parametrize("data", ["dapo14k", "math12k"])
@pytest.mark.parametrize("size", ["1.5b", "7b"])
def test_qwen25_math_is_asked_as_its_own_evaluation_asks_it(data, size):
    asked = load_run_config(preset_file(f"{data}/qwen2.5-math-{size}/restrain")).openrlhf["data.input_template"]
    assert asked.format("PROBLEM") == render(
        worded(TEMPLATES["qwen25-math-cot"], MATHEMATICS.instruction), "PROBLEM", None
    )


@pytest.mark.parametrize("data", ["dapo14k", "math12k"])
def test_llama_is_asked_in_its_own_turns(data):
    text = load_run_config(preset_file(f"{data}/llama3.2-3b-instruct/ttrl")).openrlhf["data.input_template"]
    turn = f"<|start_header_id|>user<|end_header_id|>\n\nPROBLEM\n{MATHEMATICS.instruction}<|eot_id|>"
    asked = text.format("PROBLEM")
    assert asked.startswith("<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n")
    assert asked.endswith(f"{turn}<|start_header_id|>assistant<|end_header_id|>\n\n")


def ablation(name):
    return load_run_config(CONFIGS / "ablations" / f"{name}.yaml").method


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("sigma", [0, 0.1, 0.25, 0.5, 1, 2, 5, math.inf]),
        ("delta", [0, 0.1, 1, 2, 5]),
        ("kappa", [2, 3, 5, 8]),
    ],
)
def test_the_sweeps_change_one_setting_only(setting, values):
    files = sorted((CONFIGS / "ablations").glob(f"{setting}-*.yaml"))
    methods = [load_run_config(path).method for path in files]
    assert sorted(getattr(method, setting) for method in methods) == values
    assert len({method.model_dump_json(exclude={setting}) for method in methods}) == 1


def test_each_ablation_removes_what_it_says():
    full = load_run_config(preset_file("dapo14k/qwen3-4b-base/restrain")).method.model_dump()
    removed = {
        "no_label_weights": {"label_weights"},
        "uniform_labels": {"label_weights"},
        "no_penalty": {"kappa"},
        "no_prompt_weight": {"prompt_weight"},
        "online_prompt_weight": {"prompt_weight"},
    }
    for name, keys in removed.items():
        settings = ablation(name).model_dump()
        assert {key for key in full if settings[key] != full[key]} == keys, name


@pytest.mark.parametrize("benchmark", ["aime24", "amc23", "amc83", "math500"])
def test_the_ttrl_protocol_takes_an_optimizer_step_for_as_many_rollouts_as_a_prompt_has(benchmark):
    steps = {}
    for method in ("ttrl", "restrain", "ettrl"):
        flags = parsed(f"test_time/llama3.1-8b-instruct/{benchmark}/ttrl_protocol/{method}")
        rollouts = flags["rollout.batch_size"] * flags["rollout.n_samples_per_prompt"]
        steps[method] = (flags["train.batch_size"], rollouts // flags["train.batch_size"])
    prompts = {"aime24": 8, "amc23": 8, "amc83": 8, "math500": 32}[benchmark]
    # 60 leaves are no multiple of 8 GPUs: ETTRL's steps have two prompts.
    assert steps == {"ttrl": (32, prompts), "restrain": (32, prompts), "ettrl": (120, prompts // 2)}
