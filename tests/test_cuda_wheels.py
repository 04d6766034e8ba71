"""The CUDA stack as it is installed, without a driver: all that needs none, on the wheels themselves.

Nobody but a person starts it: 9.5 GB in a quarter of an hour, then some minutes. It makes the stack by the user's own
command, or takes an environment that has it, named by CUDA_VENV.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.config.presets import preset_file, presets
from tests.conftest import ROOT

pytestmark = [pytest.mark.manual, pytest.mark.timeout(7200)]

# Of those that pass on the CPU's stack, the ones whose subject the CUDA stack changes.
TESTS = (
    "config/test_presets.py",
    "hook/test_checkpoints.py",
    "hook/test_cuda.py",
    "hook/test_held_weights.py",
    "hook/test_instrument.py",
    "hook/test_patch_orders.py",
    "hook/test_unhooked.py",
    "test_locks.py",
)
ON_GPUS = [name for name in presets() if not name.startswith("cpu/")]
# A B200 as vLLM sees it without `machine/cuda.py: attention_without_nvcc`.
UNMENDED = """
import sys
from restrain_openrlhf.machine import cuda
cuda.BLACKWELL = None
from tests.cuda_settings import main
main(*sys.argv[1:])
"""


@pytest.fixture(scope="session")
def python(tmp_path_factory) -> Path:
    """The stack's interpreter."""
    folder = os.environ.get("CUDA_VENV")
    if folder is None:
        folder = tmp_path_factory.mktemp("cuda") / "venv"
        subprocess.run(["make", "install", "STACK=gpu", f"VENV={folder}"], cwd=ROOT, check=True)
    return Path(folder).absolute() / "bin" / "python"


def run(python, *words, **environment) -> str:
    """What a program of that stack prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run([python, *words], capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout


def settings(python, *words) -> dict[str, dict]:
    """Of each preset, where there is no nvcc."""
    said = run(python, *words, CUDA_HOME="/absent")
    lines = [json.loads(line) for line in said.splitlines() if line.startswith('{"preset"')]
    return {line.pop("preset"): line for line in lines}


@pytest.fixture(scope="session")
def on_hopper(python):
    """Every preset for GPUs on compute capability 9."""
    return settings(python, "-m", "tests.cuda_settings", "9", *ON_GPUS)


def test_the_lock_is_whole_and_its_torch_is_built_for_cuda(python):
    assert "packages as pinned, every requirement met" in run(python, "tools/lock.py", "check", "gpu")
    assert run(python, "-c", "import torch; print(torch.version.cuda)").strip() == "13.0"


@pytest.mark.parametrize("file", TESTS)
def test_what_needs_no_driver_passes(python, file):
    said = run(python, "-m", "pytest", "-q", "-p", "no:randomly", f"tests/{file}")
    assert " passed" in said


def parsed(name):
    """By OpenRLHF's own parser, here."""
    from restrain_openrlhf.config.host_flags import host_flags, parse, to_arguments
    from restrain_openrlhf.config.yaml_file import load_run_config

    return vars(parse(to_arguments(host_flags(load_run_config(preset_file(name))))))


def test_deepspeed_reads_each_preset_as_it_is_written(on_hopper):
    def written(flags):
        gpus = flags["actor.num_nodes"] * flags["actor.num_gpus_per_node"]
        return {
            "stage": flags["ds.zero_stage"],
            "rollouts": flags["train.batch_size"],
            "micro_batches": flags["train.batch_size"] // (flags["train.micro_batch_size"] * gpus),
            "summed_in": flags["ds.grad_accum_dtype"],
            "torch_adam": True,
            "managed": True,
        }

    assert {name: read["deepspeed"] for name, read in on_hopper.items()} == {
        name: written(parsed(name)) for name in ON_GPUS
    }


def test_vllm_reads_each_preset_as_it_is_written(on_hopper):
    def written(flags):
        return {
            "tokens": flags["data.max_len"],
            "share_of_gpu": flags["vllm.gpu_memory_utilization"],
            "sleeps": True,
            "log_probs": "processed_logprobs",
            "tokens_at_once": 8192,
            "attention": "FlashAttentionBackend",
        }

    found = {name: dict(read["vllm"]) for name, read in on_hopper.items()}
    assert all(128 <= read.pop("rollouts_at_once") <= 512 for read in found.values())
    assert found == {name: written(parsed(name)) for name in ON_GPUS}


def test_blackwell_has_vllms_own_attention_by_the_mend_alone(python):
    """For heads of 128, as the presets' models have; FlashInfer would be compiled by an nvcc that is not there."""
    (mended,) = settings(python, "-m", "tests.cuda_settings", "10", ON_GPUS[0]).values()
    (as_it_is,) = settings(python, "-c", UNMENDED, "10", ON_GPUS[0]).values()
    assert mended["vllm"]["attention"] == "FlashAttentionBackend"
    assert as_it_is["vllm"]["attention"] == "FlashInferBackend"
