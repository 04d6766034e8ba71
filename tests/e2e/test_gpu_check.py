"""`restrain gpu-check` on the device that is there, once as a user runs it, and once with a sync that sends nothing."""

import json
import os

import pytest
import torch

from restrain_openrlhf.data.demo_tasks.problems import write_prompts
from restrain_openrlhf.data.demo_tasks.tasks import training_problems
from restrain_openrlhf.machine.devices import detect
from tests.conftest import ROOT
from tests.e2e.conftest import restrain, run

pytest.importorskip("openrlhf", reason="needs the training stack (make install)")
pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1800)]

# The policy then leaves out one of its weights.
LEAVES_ONE_OUT = """
import functools
import wrapt

LEFT_OUT = "model.layers.1.mlp.down_proj.weight"

def leave_out(module):
    host = module.ActorPPOTrainer.broadcast_to_vllm

    @functools.wraps(host)
    def broadcast_to_vllm(self):
        model = self.actor.model.module
        every = list(model.named_parameters())
        model.named_parameters = lambda: [each for each in every if each[0] != LEFT_OUT]
        host(self)
        del model.named_parameters

    module.ActorPPOTrainer.broadcast_to_vllm = broadcast_to_vllm

wrapt.register_post_import_hook(leave_out, "openrlhf.trainer.ray.ppo_actor")
"""


def lines(folder) -> dict[str, dict]:
    return {line["name"]: line for line in map(json.loads, (folder / "gpu-check.jsonl").read_text().splitlines())}


def test_everything_that_can_be_tried_here_passes(tmp_path):
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "out"
    write_prompts(prompts, training_problems(64))
    data = f"openrlhf.data.prompt_dataset={prompts}"
    done = run(restrain("gpu-check", "cpu/demo_addition", "--allow-cpu", "--set", data, "--out", out))
    assert done.returncode == 0, done.stdout + done.stderr
    found = lines(out)
    assert {line["verdict"] for line in found.values()} <= {"pass", "skipped"}
    if not detect().has_gpus:
        assert {name for name, line in found.items() if line["verdict"] == "skipped"} == {"peak memory", "sums by NCCL"}
    for name in ("weights in vLLM", "weights in vLLM, bits"):
        assert found[name]["verdict"] == "pass"
        assert name in done.stdout


def test_one_weight_that_is_not_sent_is_named(tmp_path):
    """Every process leaves it out from its start."""
    (tmp_path / "sitecustomize.py").write_text(LEAVES_ONE_OUT)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = run(restrain("gpu-check", "--allow-cpu", "--only", "training", "--out", tmp_path / "out"), env=environment)
    assert done.returncode == 1, done.stdout + done.stderr
    found = lines(tmp_path / "out")
    bits = found["weights in vLLM, bits"]
    # Where oneDNN has bfloat16, vLLM's CPU build computes with a packed copy alone; elsewhere the weight is seen, too.
    is_packed = not detect().has_gpus and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    layer = "model.layers.1.mlp.down_proj"
    names = [f"{layer} (computed)", *([] if is_packed else [f"{layer}.weight"])]
    assert bits["verdict"] == "fail"
    assert bits["found"].endswith(f"; not {', '.join(names)}")
