"""What holds of every layout: more sharing never needs more."""

from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.config.memory.estimate import estimate
from tests.config.memory.cases import TINY, flags

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
def test_lora_needs_less_of_the_host_and_the_disk(gpus, stage, rank):
    full, lora = found(gpus, stage), found(gpus, stage, ds__lora__rank=rank)
    assert sum(line.bytes for line in lora.disk) < sum(line.bytes for line in full.disk)
    assert sum(line.bytes for line in lora.host) < sum(line.bytes for line in full.host)
