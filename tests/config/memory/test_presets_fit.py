"""Every preset fits the GPUs that it is for by the estimate, in padded micro-batches and in packed ones."""

import pytest

from restrain_openrlhf.config.command_line import preset_names
from restrain_openrlhf.config.memory import GIB, estimate, shape_of
from tests.config.memory.test_one_gpu_presets import flags_of, size_of

# The demo's and the study's models are tiny, and the study trains its own.
NAMES = [name for name in preset_names() if not name.startswith("cpu/")]
PACKED = {"ds.packing_samples": True, "train.dynamic_batch_enable": True}


@pytest.mark.parametrize("changed", [{}, PACKED], ids=["padded", "packed"])
@pytest.mark.parametrize("name", NAMES)
def test_the_peak_is_within_the_gpu(name, changed):
    size = size_of(name) if name.startswith("one_gpu/") else 80
    flags = flags_of(name, **changed)
    assert estimate(flags, shape_of(flags["actor.model_name_or_path"]), size * GIB).peak[1] <= 0.9 * size * GIB
