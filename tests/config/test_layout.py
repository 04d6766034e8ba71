"""Layouts that OpenRLHF cannot run are refused from the flags alone, with what would mend them."""

import re

import pytest

from restrain_openrlhf.config.checks.layout import LAYOUT
from restrain_openrlhf.config.host_flags import parse, to_arguments
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.method import build, parse_settings

# Eight GPUs, all colocated, as the presets have them.
GOOD = {
    "actor.num_gpus_per_node": 8,
    "ref.num_gpus_per_node": 8,
    "vllm.num_engines": 8,
    "train.colocate_all": True,
    "vllm.enable_sleep": True,
    "rollout.batch_size": 128,
    "rollout.n_samples_per_prompt": 16,
    "rollout.micro_batch_size": 8,
    "train.batch_size": 2048,
    "train.micro_batch_size": 4,
    "algo.kl.init_coef": 0.001,
    "algo.kl.use_loss": True,
    "algo.advantage.estimator": "group_norm",
}
APART = {"train.colocate_all": False, "vllm.enable_sleep": False}


CONFIG = HookConfig(method=parse_settings({"name": "ttrl"}))


def first_reason(asked, checks=LAYOUT):
    """Why these flags are refused, by the first of the checks that has a reason."""
    return next(filter(None, (check(asked, CONFIG, build(CONFIG.method)) for check in checks)), None)


def words_of(changed):
    return to_arguments({**GOOD, **changed})


def flags(changed=()):
    return vars(parse(words_of(dict(changed))))


REFUSED = [
    ({"vllm.num_engines": 4}, "policy has 8 .*, vLLM 4 .*Set vllm.num_engines to 8"),
    ({"vllm.num_engines": 8, "vllm.tensor_parallel_size": 2}, "vLLM 16 .*Set vllm.num_engines to 4"),
    ({"vllm.tensor_parallel_size": 3}, "vLLM 24 .*a multiple of vllm.tensor_parallel_size"),
    ({"ref.num_gpus_per_node": 4}, "8, the reference policy 1 of 4. Set ref.num_nodes to 1 and ref.num_gpus_per_node"),
    ({**APART, "train.colocate_actor_ref": True, "ref.num_nodes": 2}, "train.colocate_actor_ref .* policy 2 of 8"),
    # As many GPUs, in other nodes.
    ({"actor.num_nodes": 2, "actor.num_gpus_per_node": 4}, "2 nodes of 4, the reference policy 1 of 8"),
    ({"ds.tensor_parallel_size": 3}, r"actor.num_nodes .* is 8, no multiple of .* = 3"),
    ({**APART, "ds.tensor_parallel_size": 2, "ref.num_gpus_per_node": 1}, "ref.num_nodes .* is 1, no multiple"),
    ({"ds.zero_stage": 3, "ds.zpg": 3}, "ds.zpg is 3 and does not divide the policy's 8"),
    ({"train.async_enable": True}, "vllm.enable_sleep and train.async_enable are set"),
    ({"ds.enable_sleep": True, "ds.zero_stage": 0}, "states stay on the GPU. Set ds.zero_stage to 2 or 3"),
    ({"train.partial_rollout_enable": True}, "partial_rollout_enable is set without"),
    (
        {"rollout.vllm_generate_batch_size": 256},
        "is 256 and rollout.batch_size is 128: .* in no checkpoint",
    ),
    ({"rollout.vllm_generate_batch_size": 32}, "is 32 and rollout.batch_size is 128: .* steps of that size"),
    ({**APART, "vllm.num_engines": 129}, "128 and vllm.num_engines is 129.* 1 engines would .* lower .* to 128"),
    (
        {"actor.num_nodes": 64, "ref.num_nodes": 64, "vllm.num_engines": 512, "rollout.batch_size": 512},
        "one of 512 engines .* all 512 GPUs, 262144 for each weight; 65536 are supported.* Raise vllm.tensor_parallel_",
    ),
    (
        {**APART, "vllm.num_engines": 129, "rollout.batch_size": 1024},
        "vllm.num_engines is 129: .* 128 engines are supported",
    ),
    ({"rollout.micro_batch_size": 512}, "is 2048, 4 micro-batches .* 8 ranks. Lower rollout.micro_batch_size to 256"),
    ({"rollout.batch_size": 127, "train.batch_size": 127 * 16}, "2032, no multiple of rollout.micro_batch_size 8"),
    ({**APART, "ref.num_gpus_per_node": 16, "rollout.micro_batch_size": 256}, "reference policy has 16 ranks"),
    (
        {**APART, "ref.num_gpus_per_node": 16, "train.dynamic_batch_enable": True, "rollout.micro_batch_size": 1},
        "reference policy has 16 ranks",
    ),
    ({"train.batch_size": 100}, "train.batch_size is 100, no multiple of the policy's 8 ranks times .* 4"),
    ({"train.batch_size": 100, "train.dynamic_batch_enable": True}, "100, no multiple of the policy's 8 ranks. Change"),
    ({"train.batch_size": 4096}, "A step has 2048 rollouts .*, no multiple of train.batch_size 4096"),
    ({"train.batch_size": 1536}, "A step has 2048 rollouts .*, no multiple of train.batch_size 1536"),
]


@pytest.mark.parametrize(("changed", "message"), REFUSED)
def test_an_impossible_layout_is_refused_with_what_would_fix_it(changed, message):
    assert re.search(message, first_reason(flags(changed)) or "")


@pytest.mark.parametrize("check", LAYOUT, ids=range(len(LAYOUT)))
def test_every_check_refuses_something(check):
    before = LAYOUT[: LAYOUT.index(check)]
    assert any(first_reason(flags(each), [check]) for each, _ in REFUSED if not first_reason(flags(each), before))


ENGINES_OF_8 = {"actor.num_nodes": 64, "ref.num_nodes": 64, "vllm.num_engines": 64, "vllm.tensor_parallel_size": 8}


@pytest.mark.parametrize(
    "changed",
    [
        {"vllm.num_engines": 4, "vllm.tensor_parallel_size": 2},
        # Without KL there is no reference policy.
        {"algo.kl.init_coef": 0, "ref.num_nodes": 0},
        {**APART, "vllm.num_engines": 1, "ref.num_gpus_per_node": 2},
        # The host turns it off by itself.
        {"train.colocate_all": False},
        {"train.colocate_all": True, "train.async_enable": True, "vllm.enable_sleep": False, "vllm.num_engines": 3},
        {**APART, "vllm.num_engines": 128},
        {**ENGINES_OF_8, "rollout.batch_size": 1024},
        {"train.dynamic_batch_enable": True, "train.micro_batch_size": 3, "train.batch_size": 1024},
        {"ds.tensor_parallel_size": 2, "train.batch_size": 1024},
    ],
)
def test_layouts_that_run_are_accepted(changed):
    assert first_reason(flags(changed)) is None
