"""The host's flags: accepted under their own names, refused where wrong or where they would change the maths."""

import re
from types import MappingProxyType

import pytest
import yaml

from restrain_openrlhf.config.checks.keys import CONTRADICTIONS, INPUTS, KEYS, REFUSED
from restrain_openrlhf.config.gpu_layout import GpuLayout
from restrain_openrlhf.config.host_flags import parse, to_arguments
from restrain_openrlhf.config.this_machine import refuse_unsupported
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.machine.device import Device, Unsupported
from restrain_openrlhf.method import build, parse_settings

GOOD = {
    "algo.advantage.estimator": "group_norm",
    "algo.kl.use_loss": True,
    "rollout.n_samples_per_prompt": 16,
}
# Asynchronous training, as it is accepted.
CORRECTED = {"train.async_enable": True, "algo.advantage.is_correction_level": "token"}


def flags_with(changed):
    return vars(parse(to_arguments({**GOOD, **changed})))


def reason(flags, checks=(*CONTRADICTIONS, *KEYS), keys=MappingProxyType({"metrics": "metrics.jsonl"}), **settings):
    """Why these flags are refused with this method, by the first of the checks that has a reason; empty if none has."""
    config = HookConfig(method=parse_settings({"name": "restrain", **settings}), **keys)
    found = (check(flags_with(flags), config, build(config.method)) for check in checks)
    return next(filter(None, found), "")


def test_flags_become_words_under_their_own_names():
    words = to_arguments({"actor.adam.betas": [0.9, 0.95], "algo.kl.use_loss": True, "ds.packing_samples": False})
    assert words == ["--actor.adam.betas", "0.9", "0.95", "--algo.kl.use_loss"]
    below = {"actor.adam.lr": -1e-6, "data.input_template": "-{}"}
    assert below.items() <= vars(parse(to_arguments(below))).items(), "argparse itself takes them for flags"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"actor.adam.lrr": 1}, "Did you mean 'openrlhf.actor.adam.lr'"),
        ({"actor.adam.lr": True}, "needs a value"),
        ({"actor.max_norm": False}, "needs a value, or null for its default"),
        ({"algo.kl.use_loss": 3}, "is a switch"),
    ],
)
def test_a_wrong_flag_is_named(flags, message):
    with pytest.raises(ConfigError) as error:
        to_arguments(flags)
    assert message in str(error.value)


@pytest.mark.parametrize("words", [["--actor.adam.lr", "fast"], ["--algo.kl.estimator", "k9"], ["--no.such.flag", "1"]])
def test_a_value_the_host_refuses_is_our_error_and_ends_nothing(words):
    with pytest.raises(ConfigError, match="OpenRLHF's command line refuses"):
        parse(words)


# Flags that each contradiction is about: whoever adds one to the table adds it here.
CONTRADICTED = [
    ({"algo.advantage.estimator": "rloo"}, "group_norm"),
    ({"algo.kl.use_loss": False}, "algo.kl.use_loss"),
    ({"algo.dynamic_filtering_enable": True}, "dynamic_filtering"),
    ({"reward.overlong_buffer_len": 512}, "overlong"),
    ({"reward.stop_properly_penalty_coef": -0.5}, "stop_properly"),
    ({"reward.clip_range": [0, 0.5]}, "clip_range"),
    ({"reward.clip_range": ["nan", "nan"]}, "clip_range is [nan, nan]"),
    ({"algo.advantage.is_correction_threshold": [5, 0.5]}, "is [5.0, 0.5]: no token lies above the first"),
    ({"reward.normalize_enable": True}, "normalize"),
    ({"train.agent_func_path": "agent.py"}, "to draw rollouts with that agent, write `agent: agent.py`"),
    ({"reward.remote_url": "http://reward:8000/get_reward"}, "OpenRLHF would never call that address"),
    ({"ds.ring_attn_size": 2}, "ring_flash_attn"),
    ({"ds.load_in_4bit": True}, "4-bit weights"),
    ({"ds.grad_accum_dtype": "fp32", "ds.adam_offload": True}, "DeepSpeed ignores fp32"),
    ({"ds.grad_accum_dtype": "fp32", "ds.adam_offload": True, "ds.zero_stage": 1}, "only that GPU's gradients"),
    ({"ds.lora.rank": 8, "ds.zero_stage": 3}, "Set ds.zero_stage to 2"),
    ({"ds.lora.rank": 8, "ds.tensor_parallel_size": 2}, "Set ds.tensor_parallel_size to 1"),
    ({"ds.lora.rank": 8, "train.enable_ema": True}, "moving average"),
    ({"train.enable_ema": True, "ckpt.load_enable": True}, "restart the average from the base model"),
    ({"algo.kl.target": 0.1}, "Remove it: algo.kl.init_coef then stays"),
    ({"critic.freezing_steps": 4}, "no critic to train first"),
    # OpenRLHF trains the policy from the step whose number is above it, and numbers them from 0.
    ({"critic.freezing_steps": 0}, "would not train the policy for that many steps and one more"),
    ({"eval.dataset": "x.jsonl"}, "chosen by gold"),
]


@pytest.mark.parametrize(("flags", "message"), CONTRADICTED)
def test_a_contradiction_is_refused_with_its_reason(flags, message):
    assert message in reason(flags)


@pytest.mark.parametrize("check", CONTRADICTIONS, ids=range(len(CONTRADICTIONS)))
def test_every_contradiction_of_the_table_is_refused(check):
    others = [each for each in CONTRADICTIONS if each is not check]
    alone = [flags for flags, _ in CONTRADICTED if reason(flags, [check]) and not reason(flags, others)]
    assert alone, "CONTRADICTED has no flags that this check alone refuses"


def test_every_name_in_the_table_of_refused_settings_is_known():
    """A row whose first condition does not hold would hide a name that nothing has."""
    method, flags = build(parse_settings({"name": "ttrl"})), flags_with({"vllm.num_engines": 1})
    owners = {"method": method, "layout": GpuLayout.of(flags), "": HookConfig(method=parse_settings({"name": "ttrl"}))}
    rows = [row for rows in yaml.safe_load(REFUSED.read_text()).values() for row in rows]
    named = {name for row in rows for name in [*row["when"], *re.findall(r"\{([\w.]+)", row["reason"])]}
    assert len(rows) > 25
    assert [
        name for name in named - flags.keys() if not hasattr(owners[name.rpartition(".")[0]], name.split(".")[-1])
    ] == []


def test_a_correction_is_refused_where_the_method_draws_the_rollouts():
    flags = {"algo.advantage.is_correction_level": "token"}
    assert not reason(flags)
    assert "is_correction_level is 'token'" in reason(flags, name="ttrl", votes=16)


def test_a_plan_of_other_rollouts_than_the_groups_is_refused():
    said = reason({}, name="ttrl", votes=64, train_on=32)
    assert "draws 64 rollouts of a prompt and trains on 32" in said
    assert "Set it to 32" in said


ACCEPTED = [
    {"ds.grad_accum_dtype": "fp32", "ds.adam_offload": True, "ds.zero_stage": 1, "actor.num_gpus_per_node": 1},
    {"ds.lora.rank": 8, "ds.zero_stage": 2},
    {"algo.kl.use_loss": False, "algo.kl.init_coef": 0},
    {"critic.freezing_steps": -1},
    {"reward.clip_range": [-1, 1]},
    CORRECTED,
    {**CORRECTED, "algo.advantage.is_correction_level": "seq"},
]


@pytest.mark.parametrize("flags", ACCEPTED)
def test_what_does_not_contradict_is_taken(flags):
    assert not reason(flags)


def test_ring_attention_is_taken_where_its_package_is(monkeypatch):
    monkeypatch.setattr("restrain_openrlhf.config.checks.keys.find_spec", lambda name: name)
    assert not reason({"ds.ring_attn_size": 2})


def test_a_model_prompts_and_a_reference_that_the_method_reads_must_be_named():
    model = {"actor.model_name_or_path": "m"}
    prompts = {**model, "data.prompt_dataset": "p.jsonl"}
    assert reason({}, INPUTS).startswith("actor.model_name_or_path is not set")
    assert reason(model, INPUTS).startswith("data.prompt_dataset is not set")
    assert "no reference was given" in reason(prompts, INPUTS)
    assert not reason(prompts, INPUTS, prompt_weight="online")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"steps": 2}, "steps is 2 and train.async_enable is set"),
        ({"evaluate_first": True}, "evaluate_first and train.async_enable are set"),
        ({"seeded_rollouts": True}, "seeded_rollouts and train.async_enable are set"),
    ],
)
def test_what_the_asynchronous_trainer_cannot_keep_is_refused(keys, message):
    assert reason(CORRECTED, keys=keys).startswith(message)
    assert not reason({}, keys=keys)


def test_votes_of_earlier_steps_need_the_synchronous_trainer_and_a_folder():
    assert reason(CORRECTED, name="ttrl_guard").startswith(
        "train.async_enable is set and the method 'ttrl_guard' reads"
    )
    assert "but metrics is not set" in reason({}, keys={}, name="ttrl_guard")
    assert not reason({}, name="ttrl_guard")


def test_the_asynchronous_trainer_needs_a_correction_for_its_older_rollouts():
    assert reason({"train.async_enable": True}).startswith("train.async_enable is set without algo.advantage.is_corr")
    assert reason(CORRECTED, name="ttrl", votes=32, train_on=16).endswith("Set it to off.")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"rollouts": {"keep": 4}}, "rollouts is set, but metrics is not"),
        ({"weight_digests": True}, "weight_digests is set, but metrics is not"),
    ],
)
def test_what_is_kept_beside_the_metrics_needs_them(keys, message):
    assert reason({}, keys=keys).startswith(message)
    assert not reason({}, keys={**keys, "metrics": "metrics.jsonl"})
    assert not reason({}, keys={})


@pytest.mark.parametrize("name", ["vllm.sync_with_ray", "ds.packing_samples"])
def test_what_the_accelerator_cannot_serve_is_refused(name):
    unsupported = Unsupported("vllm.sync_with_ray", "over TCP"), Unsupported("ds.packing_samples", "no flash-attn")
    device = Device("cpu", unsupported=unsupported)
    flags = flags_with({name: True})
    with pytest.raises(ConfigError, match=rf"{name} is set, which this cpu stack does not support: .*\. Remove it"):
        refuse_unsupported(device, flags)
    refuse_unsupported(Device("whole"), flags)


def test_the_method_and_the_flags_must_go_together():
    assert "data.label_key" in reason({}, name="grpo_gold")
    assert "even a unanimous group" in reason({}, kappa=17)


def test_too_few_gpus_is_an_error_instead_of_waiting_forever():
    layout = GpuLayout.of(vars(parse(to_arguments({"actor.num_gpus_per_node": 4, "train.colocate_all": True}))))
    layout.refuse_shortage(4)
    with pytest.raises(ConfigError, match="needs 4 GPUs, but the Ray cluster has 3"):
        layout.refuse_shortage(3)
