"""How much rollout engines work on at a time: what is set, else what follows from the run, else vLLM's own."""

import pytest

from restrain_openrlhf.config.host_flags import flags_of
from restrain_openrlhf.config.this_machine import rollouts_in_flight, with_limits
from restrain_openrlhf.config.yaml_file import EngineLimits, load_run_config
from restrain_openrlhf.machine.device import Device
from tests.config.presets import preset_file

CPU = Device("cpu", has_gpus=False)

CUDA = Device("cuda")


def limits(preset, device=CUDA, **sets):
    config = load_run_config(preset_file(preset), sets)
    return with_limits(config, flags_of(config), device).engine


@pytest.mark.parametrize(
    ("preset", "sets", "rollouts"),
    [
        # 128 prompts of 16 rollouts over 8 engines.
        ("dapo14k/qwen3-4b-base/restrain", {}, 256),
        ("dapo14k/qwen3-4b-base/restrain", {"openrlhf.vllm.num_engines": 3}, 43 * 16),
        # 8 prompts over 8 engines; 64 vote and 32 are trained on.
        ("test_time/llama3.1-8b-instruct/aime24/ttrl_protocol/ttrl", {}, 64),
    ],
)
def test_rollouts_in_flight_are_an_engines_share_of_a_step(preset, sets, rollouts):
    config = load_run_config(preset_file(preset), sets)
    assert rollouts_in_flight(config, flags_of(config)) == rollouts


@pytest.mark.parametrize(
    ("sets", "rollouts", "tokens"),
    [
        ({}, 256, 8192),
        ({"openrlhf.vllm.num_engines": 1}, 512, 8192),
        ({"openrlhf.rollout.batch_size": 8}, 128, 8192),
        ({"engine.max_num_seqs": 1024}, 1024, 8192),
        ({"engine.max_num_seqs": 10_000}, 10_000, 10_000),
        ({"engine.max_num_batched_tokens": 200}, 200, 200),
        ({"engine": {"max_num_seqs": 64, "max_num_batched_tokens": 2048}}, 64, 2048),
        ({"engine": {"max_num_seqs": 512, "max_num_batched_tokens": 256}}, 256, 256),
    ],
)
def test_an_engine_takes_its_share_within_bounds_unless_the_configuration_says_otherwise(sets, rollouts, tokens):
    found = limits("dapo14k/qwen3-4b-base/restrain", **sets)
    assert (found.max_num_seqs, found.max_num_batched_tokens) == (rollouts, tokens)


def test_without_gpus_an_engine_stays_as_it_is_unless_it_is_set():
    assert limits("cpu/demo", CPU) == EngineLimits()
    assert limits("cpu/demo", CPU, **{"engine.max_num_seqs": 7}) == EngineLimits(max_num_seqs=7)
