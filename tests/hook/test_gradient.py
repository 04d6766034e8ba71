"""The gradient of a real OpenRLHF training step equals the paper's pseudo-code, differentiated directly."""

import json
from dataclasses import replace

import pytest

from tests.processes import free_port, needs_its_accelerator, printed, rows_printed

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from restrain_openrlhf.commands.gpu_check.gradient import (
    CASES,
    LIMITS,
    TORCHS,
    GradientCase,
    as_words,
    judge_gradient,
    judge_patches,
    sum_of,
)
from restrain_openrlhf.config.command_line import find_config
from restrain_openrlhf.config.host_flags import flags_of, record
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.machine.flash_attention import BY_TORCH
from restrain_openrlhf.machine.host_releases import installed
from tests.commands.k8s import known_metrics

# What gpu-check tries of a configuration for eight GPUs.
OF_A_PRESET = GradientCase("bf16", "micro-batches", stage=3, repeats=16, grad_accum_dtype="fp32", checkpointing=True)
# As flags are on a GPU without flash-attn.
PADDED = {"ds.attn_implementation": "sdpa"}
# And of one whose preset trains an adapter.
OF_AN_ADAPTER = replace(OF_A_PRESET, stage=2, lora=True)
# Packed by torch's own attention, against the paper's gradient without packing by another.
PACKED = [GradientCase(batching=batching, attention=BY_TORCH) for batching in ("packed", "packed, dynamic")]
# The gradient is the paper's to seven digits with gradient checkpointing, as it is without.
CHECKPOINTED = [
    GradientCase(batching="micro-batches", lora=True, checkpointing=True),
    GradientCase(batching="packed, dynamic", stage=2, attention=BY_TORCH, checkpointing=True),
]
# An agent's trajectories, whose observations stand between the policy's tokens.
TWO_TURNS = [
    GradientCase(two_turns=True),
    GradientCase(batching="dynamic", two_turns=True),
    GradientCase("bf16", "packed", attention=BY_TORCH, two_turns=True),
]
# As ETTRL's and the TTRL line's presets sample.
TEMPERED = [GradientCase(temperature=0.6), GradientCase("bf16", "packed, dynamic", attention=BY_TORCH, temperature=0.6)]
# OpenRLHF before 0.11.2 has no other than the token mean.
BY_SEQUENCES = [GradientCase(token_mean=False)] if "actor.loss_agg_mode" in record(installed()) else []
# As many as are tried of any configuration, padded and packed.
MOST = [
    replace(OF_A_PRESET, stage=2, repeats=128),
    replace(OF_A_PRESET, stage=2, repeats=128, batching="packed, dynamic", attention=BY_TORCH),
]
TRIED = [
    *CASES,
    *PACKED,
    *CHECKPOINTED,
    *TORCHS,
    *TWO_TURNS,
    *TEMPERED,
    *BY_SEQUENCES,
    OF_A_PRESET,
    OF_AN_ADAPTER,
    *MOST,
]
# fp32, so that ZeRO's stages can be held to the paper's gradient to seven digits; bf16 as it is trained.
ON_CUDA = [
    GradientCase(batching="micro-batches", stage=1),
    GradientCase(batching="dynamic", stage=1),
    GradientCase(batching="packed, dynamic", stage=2, attention=BY_TORCH),
    GradientCase(batching="dynamic", stage=3),
    GradientCase(batching="packed, micro-batches", stage=2, attention=BY_TORCH, lora=True),
    GradientCase("bf16", "packed, dynamic", attention=BY_TORCH),
]
# Two data-parallel ranks, whose micro-batches have other numbers of tokens, under every stage.
ON_TWO_RANKS = [
    GradientCase(batching="micro-batches", stage=0),
    GradientCase(batching="dynamic", stage=1),
    GradientCase(batching="packed, micro-batches", stage=2, attention=BY_TORCH),
    GradientCase(batching="packed, dynamic", stage=2, attention=BY_TORCH),
    GradientCase(batching="dynamic", stage=3),
    GradientCase("bf16", "dynamic"),
]
# The mend's stages, without the mend; a stage that needs none beside them.
UNMENDED = [GradientCase(batching="dynamic", stage=stage) for stage in (1, 2, 3)]
# What `cuda.install` does before the hook is on, where the accelerator that is here is not CUDA; then the same process
# has lost the mend. Each part takes its cases as JSON and ends with what is not patched.
CUDA_FIRST = """
import json, sys
from restrain_openrlhf.commands.gpu_check import gradient
from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.hook.install.instrument import PATCHES, unpatched
from restrain_openrlhf.machine import cuda
from restrain_openrlhf.machine.patching import expect
from restrain_openrlhf.machine.patching import expect_no_more
expect([cuda.ADAM, cuda.ATTENTION])
whole, without = map(json.loads, sys.argv[1:])
gradient.main(whole)
expect_no_more([patch for patch in PATCHES if patch.qualname == "DeepspeedStrategy.get_ds_train_config"])
for word in without:
    sys.stdout.write(dump(gradient.measure(gradient.GradientCase(**json.loads(word)))))
sys.stdout.write(dump({"not_patched": unpatched()}))
"""


@pytest.fixture(scope="module")
def steps():
    """A step of each case, in a process of its own: DeepSpeed takes hold of the whole process."""
    return read(TRIED, rows_printed("-m", "restrain_openrlhf.commands.gpu_check.gradient", *as_words(TRIED)))


@pytest.fixture(scope="module")
def said_on_cuda():
    """The same where CUDA's stand-ins are put in place first, as on every CUDA stack; then without the mend."""
    return rows_printed("-c", CUDA_FIRST, *(json.dumps(as_words(cases)) for cases in (ON_CUDA, UNMENDED)))


@pytest.fixture(scope="module")
def steps_on_cuda(said_on_cuda):
    return read(ON_CUDA, said_on_cuda[: len(ON_CUDA) + 1])


def read(cases, said):
    *gaps, patches = said
    return dict(zip(cases, gaps, strict=True)) | patches


@pytest.fixture(scope="module")
def on_two_ranks():
    needs_its_accelerator()
    words, cases = ("-m", "tests.hook.two_ranks_case", free_port()), as_words(ON_TWO_RANKS)
    said, _ = printed(*((*words, rank, 2, *cases) for rank in (0, 1)))
    found = [json.loads(line) for line in said.splitlines() if line.startswith('{"distance"')]
    return dict(zip(ON_TWO_RANKS, found, strict=True))


@pytest.mark.parametrize("case", ON_TWO_RANKS, ids=lambda case: case.name)
def test_two_ranks_step_by_the_papers_gradient_and_log_the_means_of_all_their_rollouts(on_two_ranks, case):
    """The mean over ranks, or over micro-batches, of each one's own token mean would be another."""
    found, is_exact = on_two_ranks[case], case.dtype == "fp32"
    assert found["distance"] < (1e-5 if is_exact else LIMITS["bf16"])
    assert known_metrics.of_the_policy() <= set(found["names"]), "alerts and dashboards ask for these"
    assert found["logged"] == pytest.approx(found["expected"], rel=1e-4 if is_exact else 0.05)


@pytest.mark.parametrize("case", TRIED, ids=lambda case: case.name)
def test_the_gradient_of_a_real_step_is_the_papers(steps, case):
    apart, limit = steps[case], LIMITS[case.dtype]
    assert apart["clipped_share"] > 0.3
    assert apart["hooked"] < (1e-5 if limit < 0.01 else limit / 4), "far below, for a GPU's kernels round otherwise"
    assert apart["net_advantage"] > 0.1
    assert apart["kl_without_prompt_weight"] > 2 * limit


@pytest.mark.parametrize("case", ON_CUDA, ids=lambda case: case.name)
def test_every_micro_batchs_gradient_is_used_behind_cudas_stand_ins(steps_on_cuda, case):
    """Without the dynamic batches' mend, ZeRO 1 and 2 use the last one alone: 0.817 off."""
    assert steps_on_cuda[case]["hooked"] < (1e-5 if case.dtype == "fp32" else LIMITS["bf16"])


def test_a_lost_mend_is_a_wrong_gradient_and_a_line_that_names_it(said_on_cuda):
    """What is trained, and `restrain gpu-check` with it, is right by the mend and by nothing else."""
    steps = read(UNMENDED, said_on_cuda[len(ON_CUDA) + 1 :])
    gradients = [judge_gradient(case, steps[case]).verdict for case in UNMENDED]
    assert gradients == ["fail", "fail", "pass"]
    assert all(steps[case]["hooked"] > 0.5 for case in UNMENDED[:2])
    hook = judge_patches(steps["not_patched"])
    assert (hook.verdict, "DeepspeedStrategy.get_ds_train_config" in hook.found) == ("fail", True)


def test_host_modules_that_are_imported_after_the_hook_are_patched(steps):
    assert steps["not_patched"] == []


@pytest.mark.parametrize(
    ("preset", "case"),
    [
        ("dapo14k/qwen2.5-math-7b/restrain", OF_A_PRESET),
        ("dapo14k/qwen3-4b-base/restrain", replace(OF_A_PRESET, stage=2, repeats=64, checkpointing=False)),
        ("one_gpu/24gb/qwen3-0.6b-base", replace(OF_A_PRESET, stage=2, repeats=128)),
        ("one_gpu/24gb/qwen3-1.7b-base-lora", replace(OF_AN_ADAPTER, repeats=128, checkpointing=False)),
        (
            "one_gpu/80gb/qwen3-4b-base",
            replace(OF_A_PRESET, stage=1, repeats=32, adam_offload=True),
        ),
    ],
)
def test_a_configurations_own_sum_of_micro_batches_is_tried(preset, case):
    """2,048 rollouts by 4 on 8 GPUs are 64 micro-batches on each, which 16 times 12 rollouts by 3 are too."""
    assert sum_of(flags_of(load_run_config(find_config(preset)), PADDED)) == case


def test_a_configurations_own_temperature_is_tried():
    flags = flags_of(load_run_config(find_config("test_time/llama3.1-8b-instruct/aime24/ttrl_protocol/restrain")))
    assert sum_of(flags).temperature == 0.6


def test_packed_micro_batches_are_counted_at_their_longest():
    flags = flags_of(load_run_config(find_config("dapo14k/qwen3-4b-base/restrain")), PADDED)
    tokens = 8 * flags["data.max_len"]
    packed = sum_of({**flags, "train.dynamic_batch_enable": True, "train.max_tokens_per_gpu": tokens})
    assert packed.repeats == 8


@pytest.mark.parametrize(
    ("asked", "batching", "attention"),
    [
        ({}, "micro-batches", "sdpa"),
        ({"train.dynamic_batch_enable": True}, "packed, dynamic", "flash_attention_2"),
        ({"ds.packing_samples": True, "ds.attn_implementation": BY_TORCH}, "packed, micro-batches", BY_TORCH),
    ],
)
def test_what_a_configuration_packs_is_packed_by_its_own_attention(asked, batching, attention):
    """As OpenRLHF's own command does: dynamic batches are packed, by flash-attn if nothing else is said."""
    flags = flags_of(load_run_config(find_config("one_gpu/80gb/qwen3-4b-base-lora")), PADDED)
    own = sum_of({**flags, "train.max_tokens_per_gpu": 16_384, **asked})
    assert (own.batching, own.attention) == (batching, attention)


def test_a_case_is_named_in_words():
    assert GradientCase(token_mean=False).name == "fp32, whole, token_mean False"
    assert TORCHS[1].name == "bf16, packed, dynamic, attention torch_flash_attention"
    assert TEMPERED[0].name == "fp32, whole, temperature 0.6"
    assert OF_A_PRESET.name == "bf16, micro-batches, stage 3, repeats 16, grad_accum_dtype fp32, checkpointing True"
    assert GradientCase(batching="micro-batches", stage=3).name == "fp32, micro-batches, stage 3"
