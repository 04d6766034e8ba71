"""What `restrain gpu-check CONFIG` measures the memory of: the configuration's own policy, adapters included."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from transformers import Qwen3Config

from restrain_openrlhf.commands.gpu_check import memory
from restrain_openrlhf.config import this_machine
from restrain_openrlhf.config.host_flags import to_arguments
from restrain_openrlhf.config.memory.estimate import CONTEXT
from restrain_openrlhf.config.memory.lines import GIB
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.machine.device import Device
from restrain_openrlhf.machine.flash_attention import BY_TORCH
from tests.conftest import ROOT
from tests.processes import needs_its_accelerator

HIDDEN, INNER, HEADS, KEYS, HEAD, VOCABULARY = 32, 48, 4, 2, 8, 64
# The steps are real. torch counts no allocations on a CPU, so the bytes are made up.
STEPS = """
import json, sys
from dataclasses import asdict
from restrain_openrlhf.commands.gpu_check.host_step import prepare_process
prepare_process()
import torch
from restrain_openrlhf.commands.gpu_check import memory
made, batches, taken = memory._experience, [], []
memory._experience = lambda *asked: batches.append(made(*asked)) or batches[-1]
torch.cuda.reset_peak_memory_stats = lambda: taken.append("step")
torch.cuda.memory_allocated = lambda: 10 * len(taken)
torch.cuda.max_memory_allocated = lambda: 100 * len(taken)
layers, *words = sys.argv[1:]
step = asdict(memory.measure(words, int(layers)))
sizes = {(tuple(each.sequences.shape), *map(int, each.action_mask.sum(1))) for each in batches}
print(json.dumps({**step, "sizes": [*sizes]}))
"""


# What the measurement's policy is made with, and what a run's is: by the host's own command and policy process.
BOTH_ENDS = """
import json, runpy, sys
from inspect import signature
from restrain_openrlhf.commands.gpu_check.host_step import prepare_process
prepare_process()
import openrlhf.models, openrlhf.utils, ray
from openrlhf.trainer.ray import ppo_actor
from restrain_openrlhf.commands.gpu_check import memory

class Reached(Exception):
    pass

def given_to(called):
    def reached(*args, **kwargs):
        given = signature(called).bind(*args, **kwargs)
        given.apply_defaults()
        raise Reached(dict(given.arguments))
    return reached

def until_reached(function, *words, **named):
    try:
        function(*words, **named)
    except Reached as found:
        return found.args[0]

policy, get_strategy = given_to(openrlhf.models.Actor), openrlhf.utils.get_strategy
openrlhf.models.Actor = ppo_actor.Actor = policy
layers, *words = sys.argv[1:]
measured = until_reached(memory.measure, words, int(layers))

ray.is_initialized, openrlhf.utils.get_strategy = lambda: True, given_to(get_strategy)
sys.argv[1:] = words
args = until_reached(runpy.run_module, "openrlhf.cli.train_ppo_ray", run_name="__main__")["args"]
process_class = ppo_actor.PolicyModelActor.__ray_metadata__.modified_class
process = process_class.__new__(process_class)
process._setup_distributed = lambda strategy: None
run = until_reached(process.init_model_from_pretrained, get_strategy(args), args.actor.model_name_or_path)
assert measured.pop("pretrain_or_model") != run.pop("pretrain_or_model") == args.actor.model_name_or_path
print(json.dumps({"measured": measured, "run": run}))
"""


# Importing the host takes most of a case's time, so one process does it, and each case runs in a copy of that process.
EACH = """
import json, os, sys
from restrain_openrlhf.commands.gpu_check.host_step import prepare_process
prepare_process()
import openrlhf.cli.train_ppo_ray, openrlhf.trainer.ray.ppo_actor
import restrain_openrlhf.commands.gpu_check.memory
for program, words in json.loads(sys.argv[1]):
    if not os.fork():
        sys.argv[1:] = words
        exec(program, {"__name__": "__main__"})
        sys.stdout.flush()
        os._exit(0)
    assert os.wait()[1] == 0, words
"""


def flags(model, rank):
    lora = {"ds.lora.rank": rank, "ds.lora.target_modules": "all-linear"} if rank else {}
    return {
        "actor.model_name_or_path": model,
        "ds.zero_stage": 2,
        "ds.attn_implementation": "sdpa",
        "actor.gradient_checkpointing_enable": True,
        **lora,
    }


# Every one with another value than OpenRLHF's default.
MADE_WITH = {
    "ds.zero_stage": 3,
    "ds.grad_accum_dtype": "fp32",
    "ds.adam_offload": True,
    "ds.overlap_comm": True,
    "ds.packing_samples": True,
    "ds.attn_implementation": BY_TORCH,
    "ds.use_liger_kernel": True,
    "ds.lora.rank": 4,
    "ds.lora.alpha": 3,
    "ds.lora.dropout": 0.1,
    "ds.lora.target_modules": ["q_proj", "v_proj"],
    "rollout.temperature": 0.6,
}
FOR_DYNAMIC = {"train.dynamic_batch_enable": True, "train.max_tokens_per_gpu": 64}
SIZES = {
    "rollout.batch_size": 2,
    "rollout.n_samples_per_prompt": 2,
    "train.batch_size": 4,
    "train.micro_batch_size": 2,
    "rollout.micro_batch_size": 2,
    "data.max_len": 32,
    "vllm.num_engines": 1,
    "actor.num_gpus_per_node": 1,
    "algo.advantage.estimator": "group_norm",
}
KL = {"data.max_len": 32, "algo.advantage.estimator": "group_norm", "algo.kl.use_loss": True, "algo.kl.init_coef": 0.1}
TORCH_PACKS = {"train.dynamic_batch_enable": True, "ds.attn_implementation": BY_TORCH}
# For each case, its program, the adapter's rank, and its flags.
CASES = {
    "plain": (BOTH_ENDS, 0, SIZES),
    "every flag": (BOTH_ENDS, 0, {**SIZES, **MADE_WITH}),
    "dynamic": (BOTH_ENDS, 0, {**SIZES, **FOR_DYNAMIC, "ds.attn_implementation": BY_TORCH}),
    "by count": (STEPS, 4, {**KL, "rollout.max_new_tokens": 12, "train.micro_batch_size": 2}),
    "by tokens": (STEPS, 0, {**KL, "train.max_tokens_per_gpu": 100, **TORCH_PACKS}),
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """What each case says. The model is a configuration alone: what is measured has random weights."""
    needs_its_accelerator()
    model = tmp_path_factory.mktemp("measured") / "model"
    Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=6,
        num_attention_heads=HEADS,
        num_key_value_heads=KEYS,
        head_dim=HEAD,
        architectures=["Qwen3ForCausalLM"],
    ).save_pretrained(model)
    asked = [
        (program, ["2", *to_arguments({**flags(model, rank), **changed})]) for program, rank, changed in CASES.values()
    ]
    words = [sys.executable, "-c", EACH, json.dumps(asked)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')]
    return dict(zip(CASES, said, strict=True))


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("plain", {"packing_samples": False, "lora_rank": 0}),
        ("every flag", {"packing_samples": True, "use_liger_kernel": True, "lora_dropout": 0.1, "temperature": 0.6}),
        ("dynamic", {"packing_samples": True}),
    ],
)
def test_the_measured_policy_is_made_with_what_openrlhfs_command_makes_it_with(measured, case, expected):
    assert measured[case]["measured"] == measured[case]["run"]
    assert expected.items() <= measured[case]["run"].items()


# Micro-batches of two rollouts; by tokens, as many of the longest as fit; half of an unlimited rollout is response.
@pytest.mark.parametrize(("case", "sizes"), [("by count", [[4, 32], *[12] * 4]), ("by tokens", [[6, 32], *[16] * 6])])
def test_the_second_of_two_real_steps_is_measured_on_the_longest_rollouts(measured, case, sizes):
    (rows, length), *_ = sizes
    seconds = measured[case].pop("seconds")
    assert 0 < seconds < 60
    assert measured[case] == {
        "layers": 2,
        "whole": 6,
        "held": 20,
        "peak": 200,
        "tokens": rows * length,
        "sizes": [sizes],
    }


@pytest.mark.parametrize(("short", "verdict"), [(0, "pass"), (1, "fail")])
def test_on_a_gpu_two_and_four_layers_are_measured_and_held_against_its_size(short, verdict, tmp_path, monkeypatch):
    """Three GiB a layer at the peak and one between steps: 18 and 6 at six layers, on a layout that shares nothing.

    Half a second a layer is 3 s, so 32 tokens a second. 1,000 steps of 512 rollouts of 32 tokens are 142.2 hours.
    """
    asked = []

    def measured(_module, words, log):
        asked.append((words[0], words[words.index("--ds.attn_implementation") + 1], log))
        held, tokens = GIB * words[0], 96
        return [
            {"layers": words[0], "whole": 6, "held": held, "peak": 3 * held, "seconds": words[0] / 2, "tokens": tokens}
        ]

    config = load_run_config(ROOT / "configs" / "cpu" / "demo.yaml")
    monkeypatch.setattr(memory, "measured", measured)
    for module in (memory, this_machine):
        monkeypatch.setattr(
            module, "detect", lambda: Device("cuda", host_flags={"ds.attn_implementation": "the device's"})
        )
    monkeypatch.setattr(memory, "visible_memory", lambda: 18 * GIB + CONTEXT - short)
    outcome, speed = memory.check_memory(tmp_path, config)
    assert [(layers, attention) for layers, attention, _ in asked] == [(2, "the device's"), (4, "the device's")]
    assert len({log for *_, log in asked}) == 2
    assert outcome.verdict == verdict
    assert outcome.found.startswith("18.0 GiB at 6 layers by extrapolation, 6.0 of them between steps")
    assert speed.found.startswith("3.00 seconds, 32 tokens a second on one GPU; 1,000 steps of CONFIG are 142.2 hours")
