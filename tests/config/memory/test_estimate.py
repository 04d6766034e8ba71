"""Each line against arithmetic done by hand for a model of 388 parameters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.config.memory.estimate import estimate
from restrain_openrlhf.config.memory.lines import GIB, TRAINING, Phase
from restrain_openrlhf.config.memory.shape import ModelShape
from restrain_openrlhf.errors import ConfigError
from tests.config.memory.cases import PARAMETERS as P
from tests.config.memory.cases import TINY, flags, sizes

POLICY = "policy, bf16"
STATES = "fp32 master weights and Adam"


def estimated(**changed):
    return estimate(flags(**changed), TINY, 10_000)


def test_one_colocated_gpu_line_by_line():
    found = sizes(estimated())
    # Assumptions of 0.6 GiB a process and 1 GiB for vLLM asleep are no arithmetic.
    assert {name: size for name, size in found.items() if "assumed" not in name} == {
        POLICY: 776,  # 388 × 2
        "gradients, bf16": 776,
        "gradients of one micro-batch, bf16": 776,
        "gradients' reduce bucket": 1_000_000_000,  # 500,000,000 × 2
        STATES: 4_656,  # 388 × 12
        "gradients' flat and fp32 copies": 2_328,  # 388 × 6
        "reference policy, bf16": 776,
        "logits, forward (bf16, fp32)": 18_000,  # 3 × 100 × 10 × 6
        "logits, backward (fp32, gradient, bf16)": 12_000,  # 2 × 100 × 10 × 6
        "layers' inputs (gradient checkpointing)": 3_200,  # 2 × 100 × 2 layers × 4 × 2
        "logits, fp32": 8_000,  # 2 × 100 × 10 × 4
        "one layer (16 × hidden + 4 × (q + kv) + 8 × inner + 4 × inner)": 36_800,  # 2 × 100 × (64 + 24 + 96)
        "vLLM, weights": 776,
        "vLLM, keys and values of one longest sequence": 1_600,  # 100 × 2 × 2 layers × 1 head × 2 × 2
        "vLLM, the rest of its share": 2_624,  # 5,000 - 776 - 1,600
        "largest tensor's copy": 80,
    }


def test_phases_are_sums_of_their_lines_and_asleep_states_are_not_on_the_gpu():
    found = estimated()
    contexts = 3 * (6 * GIB // 10)
    assert found.peak_bytes[Phase.GENERATION] == 776 + 776 + 5_000 + contexts
    assert found.peak_bytes[Phase.EXPERIENCE] == 776 + 776 + 18_000 + GIB + contexts
    assert found.peak_bytes[Phase.STEP] == 776 + 776 + 776 + 4_656 + 2_328 + GIB + contexts
    assert found.certain_bytes == {
        Phase.GENERATION: 776 + 776 + 5_000,
        Phase.EXPERIENCE: 1_552,
        Phase.HEAD: 776 * 3 + 4_656,
        Phase.LAYERS: 776 * 4 + 4_656,
        Phase.STEP: 776 * 3 + 4_656,
        Phase.SYNC: 776 * 3,
    }
    assert found.peak[0] is Phase.LAYERS


def test_awake_states_are_there_in_every_phase():
    assert STATES in sizes(estimated(ds__enable_sleep=False), Phase.GENERATION)
    assert STATES not in sizes(estimated(), Phase.GENERATION)


@pytest.mark.parametrize(
    ("stage", "policy", "gradients", "states", "reference"),
    [(0, 776, 776, 4_656, 776), (1, 776, 776, 1_164, 776), (2, 776, 194, 1_164, 776), (3, 194, 194, 1_164, 194)],
)
def test_zero_divides_states_then_gradients_then_parameters(stage, policy, gradients, states, reference):
    four = dict.fromkeys(("actor__num_gpus_per_node", "ref__num_gpus_per_node", "vllm__num_engines"), 4)
    found = sizes(estimated(ds__zero_stage=stage, ds__enable_sleep=False, **four))
    held = (found[POLICY], found["gradients, bf16"], found[STATES], found["reference policy, bf16"])
    assert held == (policy, gradients, states, reference)


def test_a_sum_in_fp32_is_twice_as_large_and_is_not_copied_into_fp32_again():
    found = sizes(estimated(ds__grad_accum_dtype="fp32"))
    assert (found["gradients, fp32"], found["gradients of one micro-batch, bf16"]) == (388 * 4, 388 * 2)
    assert found["gradients' flat and fp32 copies"] == 388 * 4


def test_one_micro_batch_needs_no_sum_beside_it():
    assert "gradients of one micro-batch, bf16" not in sizes(estimated(train__batch_size=2, train__micro_batch_size=2))


def test_adam_on_the_host_leaves_the_gpu():
    found = estimated(ds__adam_offload=True)
    assert STATES not in sizes(found)
    assert "gradients, bf16" not in sizes(found)
    host = {line.name: line.bytes for line in found.host}
    assert host == {"Adam on the host": P * 20, "vLLM's weights asleep": P * 2}


def test_with_adam_on_the_host_zero_1_adds_up_on_the_gpu():
    found = estimated(ds__adam_offload=True, ds__zero_stage=1, ds__grad_accum_dtype="fp32")
    assert STATES not in sizes(found)
    assert sizes(found, Phase.HEAD)["gradients, fp32"] == 388 * 4
    assert {line.name: line.bytes for line in found.host}["Adam on the host"] == 388 * 18


def test_lora_trains_two_small_matrices_a_target():
    # Rank 2, a layer: q 4+4, k and v 4+2, o 4+4, gate, up and down 4+8: 8+6+6+8+36 = 64, two layers: 256.
    found = estimated(ds__lora__rank=2)
    assert sizes(found)["policy, base and adapters"] == (P + 256) * 2
    assert sizes(found)[STATES] == 256 * 12
    assert "reference policy, bf16" not in sizes(found)
    assert [line.bytes for line in found.disk] == [256 * 14, 4 * 256 * 14, (P + 256) * 2]
    chosen = estimated(ds__lora__rank=2, ds__lora__target_modules=["q_proj", "v_proj"])
    assert sizes(chosen)[STATES] == 2 * 2 * (8 + 6) * 12


def test_a_reference_policy_of_its_own_gpus_and_none():
    split = {"train__colocate_all": False, "vllm__enable_sleep": False, "ds__enable_sleep": False}
    found = estimated(**split)
    assert sizes(found, Phase.REFERENCE)["reference policy, bf16"] == 776
    assert "reference policy, bf16" not in sizes(found, Phase.HEAD)
    assert sizes(found, Phase.GENERATION).keys() == {
        "vLLM, weights",
        "vLLM, keys and values of one longest sequence",
        "vLLM, the rest of its share",
    }
    assert not any("reference" in name for name in sizes(estimated(algo__kl__init_coef=0)))


def test_the_reference_goes_to_the_host_with_zero_3_alone():
    assert "reference policy, bf16" in sizes(estimated(ref__offload=True))
    there = estimated(ref__offload=True, ds__zero_stage=3)
    assert "reference policy, bf16" not in sizes(there)
    assert {line.name: line.bytes for line in there.host}["reference policy on the host"] == 776


def test_dynamic_batching_is_bounded_by_its_token_budget_or_one_longest_sequence():
    name = "logits, backward (fp32, gradient, bf16)"
    dynamic = {"ds__packing_samples": True, "train__dynamic_batch_enable": True}
    assert sizes(estimated(train__max_tokens_per_gpu=150, **dynamic))[name] == 150 * 10 * 6
    assert sizes(estimated(train__max_tokens_per_gpu=50, **dynamic))[name] == 100 * 10 * 6
    forward = estimated(train__max_tokens_per_gpu=150, rollout__max_tokens_per_gpu=400, **dynamic)
    assert sizes(forward)["logits, forward (bf16, fp32)"] == 400 * 10 * 6


def test_a_temperature_costs_one_more_gradient():
    found = sizes(estimated(rollout__temperature=0.6))
    assert found["logits, backward (fp32, gradient, bf16)"] == 2 * 100 * 10 * 10


@pytest.mark.parametrize(("coefficient", "each"), [(0, 6), (0.01, 12), (-0.01, 12)])
def test_an_entropy_in_the_loss_has_a_gradient_of_its_own(coefficient, each):
    found = sizes(estimated(actor__entropy_coef=coefficient))
    assert found["logits, backward (fp32, gradient, bf16)"] == 2 * 100 * 10 * each
    tempered = sizes(estimated(actor__entropy_coef=coefficient, rollout__temperature=0.6))
    assert tempered["logits, backward (fp32, gradient, bf16)"] == 2 * 100 * 10 * max(each, 10)


def test_without_checkpointing_every_layer_keeps_its_tensors():
    found = sizes(estimated(actor__gradient_checkpointing_enable=False))
    assert found["all layers (16 × hidden + 4 × (q + kv) + 8 × inner)"] == 2 * 30_400  # 2 × 100 × (64 + 24 + 64)


# GB on one A100 with 256, 512, … 8,192 tokens: LoRA of rank 64 with gradient checkpointing and flash attention, by
# "Profiling of Memory and Speed" of Qwen's README (github.com/QwenLM/Qwen), which PyTorch 2.0 and peft took.
QWENS = {
    (4096, 32, 11_008, 151_936): (20.1, 20.4, 21.5, 23.8, 29.7, 36.6),
    (5120, 40, 13_696, 152_064): (34.6, 35.1, 35.3, 37.4, 42.5, 55.2),
}


@pytest.mark.parametrize("sizes", QWENS, ids=["7B", "14B"])
def test_what_qwen_measured_is_within_a_tenth(sizes):
    """Its loss has 12 bytes a logit, as an entropy here: in bf16 twice (one shifted), in fp32, and its log-softmax."""
    hidden, heads, inner, words = sizes
    shape = ModelShape(
        model_type="llama", hidden_size=hidden, num_hidden_layers=heads, num_attention_heads=heads, head_dim=128,
        num_key_value_heads=heads, intermediate_size=inner, vocab_size=words,
    )  # fmt: skip
    alone = dict.fromkeys(("train__colocate_all", "vllm__enable_sleep", "ds__enable_sleep"), False)
    alone |= {"ds__lora__rank": 64, "actor__entropy_coef": 0.01, "train__micro_batch_size": 1, "algo__kl__init_coef": 0}
    for place, measured in enumerate(QWENS[sizes]):
        peaks = estimate(flags(**alone, data__max_len=256 << place), shape).peak_bytes
        assert measured * 1e9 / max(peaks[phase] for phase in TRAINING) == pytest.approx(1, abs=0.1)


def test_tensor_parallel_engines_divide_weights_and_never_split_a_head():
    two = dict.fromkeys(("actor__num_gpus_per_node", "ref__num_gpus_per_node", "vllm__tensor_parallel_size"), 2)
    found = sizes(estimated(**two))
    assert found["vLLM, weights"] == 388
    assert found["vLLM, keys and values of one longest sequence"] == 1_600


def test_the_disk_holds_as_many_checkpoints_as_are_kept_and_the_next():
    disk = {line.name: line.bytes for line in estimated(ckpt__max_num=5).disk}
    assert disk == {
        "one checkpoint": P * 14,
        "checkpoints (ckpt.max_num + 1)": P * 84,
        "trained model, bf16": P * 2,
    }


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ds__tensor_parallel_size": 2}, "ds.tensor_parallel_size = 2 is not worked out"),
        ({"actor__optim": "muon"}, "actor.optim = 'muon'"),
        ({"ds__zero_stage": 0}, "ds.enable_sleep and ds.adam_offload need ds.zero_stage"),
    ],
)
def test_what_is_not_covered_is_refused(changed, message):
    with pytest.raises(ConfigError, match=message):
        estimated(**changed)


GPUS = st.sampled_from([1, 2, 4, 8])
STAGES = st.sampled_from([1, 2, 3])


def found(gpus, stage, **more):
    counts = dict.fromkeys(("actor__num_gpus_per_node", "ref__num_gpus_per_node", "vllm__num_engines"), gpus)
    return estimate(flags(**counts, ds__zero_stage=stage, **more), TINY, 10_000)


@given(gpus=GPUS, stage=STAGES)
def test_more_gpus_never_need_more_of_each(gpus, stage):
    assert found(2 * gpus, stage).certain[1] <= found(gpus, stage).certain[1]


@given(gpus=GPUS.filter(lambda gpus: gpus > 1), stage=st.sampled_from([1, 2]))
def test_a_higher_stage_never_needs_more(gpus, stage):
    """On one GPU stage 2 does: it divides nothing, and keeps a micro-batch's gradients beside their sum."""
    assert found(gpus, stage + 1).certain[1] <= found(gpus, stage).certain[1]


@given(gpus=GPUS, stage=STAGES, rank=st.integers(1, 3))
def test_lora_needs_less_of_the_host_and_smaller_checkpoints(gpus, stage, rank):
    full, lora = found(gpus, stage), found(gpus, stage, ds__lora__rank=rank)
    assert all(one.bytes < other.bytes for one, other in zip(lora.disk[:2], full.disk[:2], strict=True)), "checkpoints"
    assert sum(line.bytes for line in lora.host) < sum(line.bytes for line in full.host)
