"""Numbers among the host's flags that no training can use are refused, by every way that a flag can come."""

import math

import pytest

from restrain_openrlhf.config.checks.keys import OUT_OF_BOUNDS
from restrain_openrlhf.config.command_line import choose_kind, find_config
from restrain_openrlhf.config.documents import typed
from restrain_openrlhf.config.host_flags import BOUNDS, host_parser, parse, record
from restrain_openrlhf.config.yaml_file import HookConfig, StopRules, load_run_config
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.machine.host_releases import NEWEST
from restrain_openrlhf.method import build, parse_settings
from tests.command_line import refused

PRESET = "dapo14k/qwen3-4b-base/restrain"
# By hand: values on either side of each end, as `refused | accepted`. NaN and infinities are refused besides.
ENDS = {
    **dict.fromkeys(("actor.num_nodes", "actor.num_gpus_per_node", "vllm.num_engines"), "-1 0 | 1 8"),
    **dict.fromkeys(("vllm.tensor_parallel_size", "ds.ring_attn_size", "ds.tensor_parallel_size"), "-1 0 | 1 2"),
    **dict.fromkeys(("rollout.batch_size", "rollout.micro_batch_size"), "-1 0 | 1 64"),
    **dict.fromkeys(("train.batch_size", "train.micro_batch_size"), "-1 0 | 1 64"),
    **dict.fromkeys(("ref.num_nodes", "ref.num_gpus_per_node"), "-1 0 | 1 8"),
    "rollout.n_samples_per_prompt": "-1 0 1 | 2 16",
    **dict.fromkeys(("train.num_episodes", "train.max_epochs", "data.max_samples"), "-1 0 | 1 20"),
    "data.max_len": "-1 1 | 2 4096",
    **dict.fromkeys(("rollout.max_new_tokens", "rollout.max_tokens_per_gpu", "train.max_tokens_per_gpu"), "-3 0 | 1 9"),
    **dict.fromkeys(("ds.zpg", "ds.ring_attn_head_stride", "train.async_queue_size"), "-1 0 | 1 2"),
    **dict.fromkeys(("rollout.vllm_generate_batch_size", "data.dataloader_num_workers"), "-1 | 0 4"),
    **dict.fromkeys(("data.max_images_per_prompt", "ds.lora.rank"), "-1 | 0 16"),
    "ds.zero_stage": "-1 4 | 0 3",
    "ds.lora.alpha": "-16 0 | 1 16",
    "ds.lora.dropout": "-0.1 1 | 0 0.1",
    **dict.fromkeys(("eval.steps", "ckpt.save_steps"), "-2 0 | -1 1 10"),
    "logger.logging_steps": "-1 0 | 1",
    "ckpt.max_num": "-1 0 | 1 3",
    # OpenRLHF's default is no limit.
    "ckpt.max_mem": "-1 0 | 0.5 inf",
    "actor.eps_clip": "-0.2 0 1.5 | 0.2 1",
    "actor.eps_clip_low_high": "-0.2 0 | 0.2 5",
    "actor.dual_clip": "-3 1 | 1.1 3",
    "algo.advantage.is_correction_threshold": "-0.5 | 0 5",
    **dict.fromkeys(("algo.kl.init_coef", "actor.aux_loss_coef"), "-1 -1e-9 | 0 0.001"),
    # A negative coefficient punishes entropy, which a user may want.
    "actor.entropy_coef": "| -0.1 0 0.1",
    "rollout.temperature": "-1 0 0.009 2.1 | 0.01 2",
    "eval.temperature": "-1 2.1 | 0 2",
    "rollout.top_p": "-1 0 1.5 | 0.1 1",
    "eval.n_samples_per_prompt": "-1 0 | 1 4",
    "vllm.gpu_memory_utilization": "-0.5 0 1.01 | 0.5 1",
    **dict.fromkeys(("actor.adam.lr", "actor.muon.lr"), "-1e-6 0 1.1 | 1e-6 1"),
    **dict.fromkeys(("actor.adam.betas", "actor.muon.momentum", "train.ema_beta"), "-0.1 1 | 0 0.95"),
    "actor.adam.eps": "-1e-8 0 | 1e-8",
    "actor.adam.weight_decay": "-0.1 | 0 0.1",
    "actor.muon.ns_steps": "-1 0 | 1 5",
    **dict.fromkeys(("actor.lr_warmup_ratio", "actor.min_lr_ratio"), "-0.1 1.1 | 0 1"),
    "actor.max_norm": "-1 | 0 1",
    "train.seed": "-1 4294967168 | 0 4294967167",
}
# Numbers that nothing reads in a training of this project: there is no critic and no reward model, and the hook or the
# entry point replaces what uses the others. A check of its own refuses every value of most.
UNUSED = {
    *(name for name in record(NEWEST) if name.startswith(("critic.", "reward."))),
    *("local_rank", "algo.advantage.lambd", "algo.advantage.gamma", "algo.kl.target", "algo.kl.horizon"),
    "algo.dynamic_filtering_range",
}


CONFIG = HookConfig(method=parse_settings({"name": "ttrl"}))


def is_refused(name, number):
    """Whether the gate's first check of this flag refuses it, as the only number or as each of a list's."""
    action = host_parser()._option_string_actions[f"--{name}"]
    values = [action.type(number)] * 2 if action.nargs else action.type(number)
    flags = {**vars(parse([])), "vllm.num_engines": 1, "rollout.n_samples_per_prompt": 16, name: values}
    reasons = [reason for check in OUT_OF_BOUNDS if (reason := check(flags, CONFIG, build(CONFIG.method)))]
    assert all(reason.startswith(f"{name} is {values}. Set it to ") for reason in reasons)
    return len(reasons) == 1


@pytest.mark.parametrize("name", ENDS)
def test_a_number_is_refused_outside_of_its_range_and_taken_within(name):
    wrong, right = ENDS[name].split("|")
    if host_parser()._option_string_actions[f"--{name}"].type is float:
        wrong += " nan -inf" + " inf" * (name != "ckpt.max_mem")
    assert [word for word in wrong.split() if not is_refused(name, word)] == []
    assert [word for word in right.split() if is_refused(name, word)] == []


def test_every_number_of_the_host_is_bounded_or_read_by_nothing():
    numbers = {name for name, keywords in record(NEWEST).items() if keywords.get("type") in ("int", "float")}
    assert set(ENDS) == numbers - UNUSED
    assert sorted(ENDS) == sorted(name for bound in BOUNDS for name in bound.flags)


@pytest.mark.parametrize(("name", "value"), [("top_p", "1.5"), ("temperature", ".inf")])
def test_nonsense_is_refused_in_a_file_and_by_the_reference_pass(tmp_path, name, value):
    (tmp_path / "own.yaml").write_text(f"extends: {PRESET}\nopenrlhf: {{rollout.{name}: {value}}}\n")
    assert name in refused("show", tmp_path / "own.yaml")
    words = ("reference", "--model", tmp_path, "--prompts", tmp_path / "p.jsonl", "--out", tmp_path / "o.jsonl")
    option = f"--{name.replace('_', '-')}"
    assert option in refused(*words, f"{option}={value.removeprefix('.')}")


def test_own_numbers_that_no_run_can_use_are_refused(tmp_path):
    """Those of the configuration, of the kinds of answers and of the stop rules, which pydantic takes by default."""
    for key in ("logprob_gap_limit", "deadline_days", "agent.trajectory_seconds"):
        path = {"agent.path": "a.py"} if key.startswith("agent") else {}
        with pytest.raises(ConfigError, match=f"{key} is inf: input should be a finite number"):
            load_run_config(find_config(PRESET), {**path, key: math.inf})
    for block in (
        "number, absolute: .inf",
        "code, group_seconds: .inf",
        "sql, seconds: .inf",
        "number, relative: .nan",
    ):
        with pytest.raises(ConfigError, match="--answers: "):
            choose_kind(f"{{name: {block}}}")
    for rule in ("kl=nan", "kl=-1", "entropy=inf", "entropy=1", "template=nan", "patience=0", "patience=inf"):
        with pytest.raises(ConfigError, match="stop:"):
            typed(StopRules, dict([rule.split("=")]), "stop")
    assert typed(StopRules, {"kl": "inf"}, "stop").kl == math.inf, "which never fires"
