"""Every preset loads, resolves to what the golden file says, and is taken by OpenRLHF's own parser."""

import math

import pytest

pytest.importorskip("openrlhf", reason="needs the installed OpenRLHF")
pytestmark = pytest.mark.host

from restrain_openrlhf.config.host_defaults import host_flags  # noqa: E402
from restrain_openrlhf.config.yaml_file import load_run_config, read_yaml  # noqa: E402
from restrain_openrlhf.hook.compatibility import refuse_contradictions  # noqa: E402
from restrain_openrlhf.hook.host_flags import parse, to_arguments  # noqa: E402
from restrain_openrlhf.method import build  # noqa: E402
from tests.config.presets import GOLDEN, command, presets  # noqa: E402
from tests.conftest import ROOT  # noqa: E402

METHODS = {"grpo_gold", "ttrl", "srt_offline", "srt_easy", "restrain"}
NAMES = [str(path.relative_to(ROOT / "configs")) for path in presets()]


def golden():
    sections = GOLDEN.read_text(encoding="utf-8").split("# configs/")[1:]
    return dict(section.split("\n", 1) for section in sections)


@pytest.mark.parametrize("name", NAMES)
def test_the_resolved_command_is_the_golden_one(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert command(ROOT / "configs" / name).strip() == golden()[name].strip()


@pytest.mark.parametrize("name", NAMES)
def test_openrlhf_takes_the_flags_and_the_hook_finds_no_contradiction(name):
    config = load_run_config(ROOT / "configs" / name)
    arguments = parse(to_arguments(host_flags(config)))
    refuse_contradictions(arguments, build(config.method))
    flags = vars(arguments)
    rollouts = flags["rollout.batch_size"] * flags["rollout.n_samples_per_prompt"]
    assert rollouts % flags["train.batch_size"] == 0, "an optimizer step would mix rollout batches"
    gpus = flags["actor.num_nodes"] * flags["actor.num_gpus_per_node"]
    assert flags["train.batch_size"] % (flags["train.micro_batch_size"] * gpus) == 0


@pytest.mark.parametrize("folder", ["dapo14k/qwen3-4b-base", "dapo14k/octothinker-8b-hybrid-base", "s1k/qwen3-4b-base"])
def test_every_method_of_the_paper_has_a_preset(folder):
    found = {path.stem for path in (ROOT / "configs" / folder).glob("[a-z]*.yaml")}
    assert found >= METHODS


def ablation(name):
    return load_run_config(ROOT / "configs" / "ablations" / f"{name}.yaml").method


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("sigma", [0, 0.1, 0.25, 0.5, 1, 2, 5, math.inf]),
        ("delta", [0, 0.1, 1, 2, 5]),
        ("kappa", [2, 3, 5, 8]),
    ],
)
def test_the_sweeps_change_one_setting_only(setting, values):
    files = sorted((ROOT / "configs" / "ablations").glob(f"{setting}-*.yaml"))
    methods = [load_run_config(path).method for path in files]
    assert sorted(getattr(method, setting) for method in methods) == values
    assert len({method.model_dump_json(exclude={setting}) for method in methods}) == 1


def test_the_limits_of_sigma_are_exact():
    for name, weights in (("sigma-0", [1.0, 0.0]), ("sigma-inf", [0.5, 0.5])):
        method = build(ablation(name).model_copy(update={"prompt_weight": 1.0, "prompt_sigma": None}))
        assert method.score([0] * 12 + [1] * 4).label_weights.tolist() == weights


def test_each_ablation_removes_what_it_says():
    full = load_run_config(ROOT / "configs" / "dapo14k" / "qwen3-4b-base" / "restrain.yaml").method.model_dump()
    removed = {
        "no_label_weights": {"belief"},
        "uniform_labels": {"belief"},
        "no_penalty": {"kappa"},
        "no_prompt_weight": {"prompt_weight"},
        "online_prompt_weight": {"prompt_weight"},
    }
    for name, keys in removed.items():
        settings = ablation(name).model_dump()
        assert {key for key in full if settings[key] != full[key]} == keys, name


def test_octothinker_generates_8192_tokens():
    for path in (ROOT / "configs" / "dapo14k" / "octothinker-8b-hybrid-base").glob("[a-z]*.yaml"):
        assert load_run_config(path).openrlhf["rollout.max_new_tokens"] == 8192


def test_values_that_the_paper_does_not_state_are_marked():
    text = (ROOT / "configs" / "dapo14k" / "qwen3-4b-base" / "_base.yaml").read_text(encoding="utf-8")
    for name in ("rollout.batch_size", "train.batch_size", "actor.lr_scheduler"):
        (line,) = [line for line in text.splitlines() if line.strip().startswith(f"{name}:")]
        assert "# ours" in line


def test_no_preset_extends_more_than_one_file():
    for path in presets():
        read_yaml(path)
