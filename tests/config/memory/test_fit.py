"""A layout that cannot fit is refused before anything is fetched; an estimate alone refuses nothing."""

import os
import re

import pytest

from restrain_openrlhf.config import this_machine
from restrain_openrlhf.config.checks import why_it_cannot_fit
from restrain_openrlhf.config.memory.estimate import estimate
from restrain_openrlhf.config.memory.lines import GIB
from restrain_openrlhf.config.memory.shape import shape_of
from restrain_openrlhf.machine.device import Device
from tests.command_line import restrain
from tests.config.memory.cases import flags
from tests.processes import program

MODEL = "Qwen/Qwen3-4B-Base"
# 4,022,468,096 × (2 + 2 + 2 + 2 + 12) bytes: policy, reference, gradients, those of one micro-batch, states.
CERTAIN = 4_022_468_096 * 20


def of_4b(**changed):
    return flags(actor__model_name_or_path=MODEL, **changed)


def test_refused_at_one_byte_less_than_weights_and_states():
    assert why_it_cannot_fit(of_4b(), CERTAIN) is None
    reason = str(why_it_cannot_fit(of_4b(), CERTAIN - 1))
    assert re.search(r"what is certain alone needs 74\.9 in the phase 'backward: layers'.*ds\.adam_offload", reason)


def test_activations_and_logits_refuse_nothing():
    asked = of_4b(train__micro_batch_size=64, data__max_len=6144)
    assert estimate(asked, shape_of(MODEL), 80 * GIB).peak[1] > 450 * GIB
    assert why_it_cannot_fit(asked, 80 * GIB) is None


def test_an_engine_whose_share_is_too_small_for_its_weights_is_refused():
    asked = of_4b(ds__adam_offload=True, vllm__gpu_memory_utilization=0.09)
    reason = str(why_it_cannot_fit(asked, 80 * GIB))
    assert "gpu_memory_utilization is 0.09: 7.2 of 80.0 GiB, and vLLM needs 7.5" in reason


@pytest.mark.parametrize(
    ("asked", "size"),
    [
        (of_4b(), None),
        (flags(actor__model_name_or_path="no-one/no-model"), GIB),
        (of_4b(ds__tensor_parallel_size=2), GIB),
    ],
    ids=["no GPU known", "no shape known", "not covered"],
)
def test_what_is_not_known_refuses_nothing(asked, size):
    assert why_it_cannot_fit(asked, size) is None


@pytest.fixture
def driver(monkeypatch, tmp_path):
    """An nvidia-smi of two GPUs that notes what it was asked."""
    gpus = r"580.65.06, A GPU, 81000, 81559\n580.65.06, A GPU, 24000, 24564\n"
    program(tmp_path, "nvidia-smi", f'echo "$@" > {tmp_path}/asked\nprintf "{gpus}"')
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(this_machine, "detect", lambda: Device("cuda"))
    return tmp_path / "asked"


def test_the_smallest_visible_gpu_counts(driver, monkeypatch):
    assert this_machine.visible_memory() == 24_564 * 2**20
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,3")
    this_machine.visible_memory()
    assert "--id=0,3" in driver.read_text()


def test_the_cpu_stack_and_other_clusters_have_no_known_gpu(driver, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert this_machine.visible_memory() is None
    monkeypatch.delenv("RAY_ADDRESS")
    monkeypatch.setattr(this_machine, "detect", lambda: Device("cpu", has_gpus=False))
    assert this_machine.visible_memory() is None


PRESET = "dapo14k/qwen3-4b-base/restrain"


def test_the_table_has_formulas_phases_and_the_peak():
    done = restrain("show", PRESET, "--memory", "--gpu-memory", "80")
    assert done.returncode == 0, done.stderr
    assert "Qwen/Qwen3-4B-Base: 4,022,468,096 parameters." in done.stdout
    (states,) = [line for line in done.stdout.splitlines() if line.startswith("| fp32 master weights and Adam")]
    # 4,022,468,096 × 12 / 8 bytes are 5.62 GiB, in both parts of backward and in the optimizer's step.
    assert [cell.strip() for cell in states.strip("|").split("|")] == [
        "fp32 master weights and Adam", "4,022,468,096 × 12 / 8", "", "", "5.6", "5.6", "5.6", "",
    ]  # fmt: skip
    assert "of the GPU's 80.0:" in done.stdout


def test_a_model_of_unknown_shape_is_refused_with_the_way_out():
    assert "works only with --memory" in restrain("show", PRESET, "--gpu-memory", "80").stderr
    done = restrain("show", PRESET, "--memory", "--set", "openrlhf.actor.model_name_or_path=no-one/no-model")
    assert done.returncode == 2
    assert "no-one/no-model: its shape is not known here" in done.stderr
    assert "Name a folder that holds the model's config.json" in done.stderr
