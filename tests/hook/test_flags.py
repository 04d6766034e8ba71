"""The host's flags: accepted under their own names, refused where wrong or where they would change the maths."""

import pytest

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.hook.device import Device, Unsupported
from restrain_openrlhf.method import build, parse_settings

pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from restrain_openrlhf.hook.compatibility import (  # noqa: E402
    CONTRADICTIONS,
    GOLD_IN_SELECTION,
    refuse_contradictions,
    refuse_unsupported,
)
from restrain_openrlhf.hook.host_flags import host_parser, parse, to_arguments  # noqa: E402
from restrain_openrlhf.hook.sizes import gpus_needed, refuse_shortage  # noqa: E402

GOOD = {
    "algo.advantage.estimator": "group_norm",
    "algo.kl.use_loss": True,
    "rollout.n_samples_per_prompt": 16,
}


def method(name="restrain"):
    return build(parse_settings({"name": name}))


def refused(flags, name="restrain"):
    with pytest.raises(ConfigError) as error:
        refuse_contradictions(parse(to_arguments({**GOOD, **flags})), method(name))
    return str(error.value)


def test_the_parser_is_the_hosts_own():
    options = host_parser()._option_string_actions
    assert len(options) > 150
    assert options["--algo.kl.estimator"].choices == ["k1", "k2", "k3"]


def test_flags_become_words_under_their_own_names():
    words = to_arguments({"actor.adam.betas": [0.9, 0.95], "algo.kl.use_loss": True, "ds.packing_samples": False})
    assert words == ["--actor.adam.betas", "0.9", "0.95", "--algo.kl.use_loss"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"actor.adam.lrr": 1}, "Did you mean 'openrlhf.actor.adam.lr'"),
        ({"actor.adam.lr": True}, "needs a value"),
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


def test_good_flags_pass():
    refuse_contradictions(parse(to_arguments(GOOD)), method())


# Flags that each contradiction is about: whoever adds one to the table adds it here.
CONTRADICTED = [
    ({"algo.advantage.estimator": "rloo"}, "group_norm"),
    ({"algo.advantage.estimator": "gae"}, "group_norm"),
    ({"algo.advantage.estimator": "reinforce_baseline"}, "group_norm"),
    ({"rollout.n_samples_per_prompt": 1}, "needs a group"),
    ({"algo.kl.use_loss": False}, "algo.kl.use_loss"),
    ({"algo.dynamic_filtering_enable": True}, "dynamic_filtering"),
    ({"reward.overlong_buffer_len": 512}, "overlong"),
    ({"reward.stop_properly_penalty_coef": -0.5}, "stop_properly"),
    ({"reward.clip_range": [0, 0.5]}, "clip_range"),
    ({"reward.normalize_enable": True}, "normalize"),
    ({"train.agent_func_path": "agent.py"}, "not this project's agent"),
    ({"reward.remote_url": "http://reward:8000/get_reward"}, "OpenRLHF would not ask there"),
    ({"ds.ring_attn_size": 2}, "ring_flash_attn"),
    ({"ds.load_in_4bit": True}, "4-bit weights"),
    ({"ds.lora.rank": 8, "ds.load_in_4bit": True}, "4-bit weights"),
    ({"ds.lora.rank": 8, "ds.zero_stage": 3}, "Set ds.zero_stage to 2"),
    ({"ds.lora.rank": 8, "ds.tensor_parallel_size": 2}, "Set ds.tensor_parallel_size to 1"),
    ({"ds.lora.rank": 8, "train.enable_ema": True}, "moving average"),
    ({"train.enable_ema": True, "ckpt.load_enable": True}, "begin it anew from the base model"),
    ({"algo.kl.target": 0.1}, "Remove it: algo.kl.init_coef is kept"),
    ({"critic.freezing_steps": 4}, "no critic to train first"),
    # OpenRLHF trains the policy from the step whose number is above it, and numbers them from 0.
    ({"critic.freezing_steps": 0}, "untrained for one step more"),
    ({"eval.dataset": "x.jsonl"}, "chosen by gold"),
]


@pytest.mark.parametrize(("flags", "message"), CONTRADICTED)
def test_a_contradiction_is_refused_with_its_reason(flags, message):
    assert message in refused(flags)


@pytest.mark.parametrize("contradiction", [*CONTRADICTIONS, GOLD_IN_SELECTION], ids=lambda each: each.message[:40])
def test_every_contradiction_of_the_table_is_refused(contradiction):
    held = [flags for flags, _ in CONTRADICTED if contradiction.holds(vars(parse(to_arguments({**GOOD, **flags}))))]
    assert held
    assert all(contradiction.message.split("{")[0] in refused(flags) for flags in held)


def test_a_correction_is_refused_where_the_method_draws_the_rollouts():
    flags = {**GOOD, "algo.advantage.is_correction_level": "token"}
    refuse_contradictions(parse(to_arguments(flags)), method())
    with pytest.raises(ConfigError, match="is_correction_level is 'token'"):
        refuse_contradictions(parse(to_arguments(flags)), build(parse_settings({"name": "ttrl", "votes": 16})))


def test_lora_is_taken_where_weights_are_whole():
    refuse_contradictions(parse(to_arguments({**GOOD, "ds.lora.rank": 8, "ds.zero_stage": 2})), method())


def test_ring_attention_is_taken_where_its_package_is(monkeypatch):
    monkeypatch.setattr("restrain_openrlhf.hook.compatibility.find_spec", lambda name: name)
    refuse_contradictions(parse(to_arguments({**GOOD, "ds.ring_attn_size": 2})), method())


def test_no_kl_at_all_needs_no_kl_loss():
    flags = {**GOOD, "algo.kl.use_loss": False, "algo.kl.init_coef": 0}
    refuse_contradictions(parse(to_arguments(flags)), method())


def test_a_kappa_above_the_groups_size_is_refused():
    strict = build(parse_settings({"name": "restrain", "kappa": 17}))
    with pytest.raises(ConfigError, match="even a unanimous group"):
        refuse_contradictions(parse(to_arguments(GOOD)), strict)


@pytest.mark.parametrize("name", ["vllm.sync_with_ray", "ds.packing_samples"])
def test_what_the_accelerator_cannot_serve_is_refused(name):
    unsupported = Unsupported("vllm.sync_with_ray", "over TCP"), Unsupported("ds.packing_samples", "no flash-attn")
    device = Device("cpu", unsupported=unsupported)
    flags = vars(parse(to_arguments({**GOOD, name: True})))
    with pytest.raises(ConfigError, match=rf"{name} is set, and this cpu stack cannot: .*\. Remove it"):
        refuse_unsupported(device, flags)
    refuse_unsupported(Device("whole"), flags)


def test_gold_training_must_name_its_column():
    assert "data.label_key" in refused({}, "grpo_gold")


@pytest.mark.parametrize(
    ("flags", "gpus"),
    [
        ({}, 1 + 1 + 2),
        ({"algo.kl.init_coef": 0}, 1 + 2),
        ({"train.colocate_actor_ref": True}, 1 + 2),
        ({"train.colocate_all": True}, 1),
        ({"train.colocate_all": True, "train.async_enable": True}, 1 + 2),
        ({"actor.num_nodes": 2, "actor.num_gpus_per_node": 4, "vllm.tensor_parallel_size": 2}, 8 + 1 + 4),
    ],
)
def test_the_gpus_a_layout_needs(flags, gpus):
    layout = {"actor.num_gpus_per_node": 1, "ref.num_gpus_per_node": 1, "vllm.num_engines": 2}
    assert gpus_needed(vars(parse(to_arguments({**layout, **flags})))) == gpus


def test_too_few_gpus_is_an_error_instead_of_waiting_forever():
    refuse_shortage(4, 4)
    with pytest.raises(ConfigError, match="needs 4 GPUs and the Ray cluster has 3"):
        refuse_shortage(4, 3)
