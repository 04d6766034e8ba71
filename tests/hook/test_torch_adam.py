"""Where nothing compiles CUDA code, OpenRLHF's optimizer is torch's fused AdamW, offloaded or not."""

import json

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from restrain_openrlhf.machine import cuda  # noqa: E402
from tests.processes import free_port, needs_its_accelerator, printed  # noqa: E402

ADAM = {"type": "AdamW", "params": {"lr": 1e-6, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.0}}
MUON = {"type": "Muon", "params": {"lr": 1e-3}}


def asked_for(optimizer, monkeypatch, reason):
    """The optimizer's part of DeepSpeed's configuration, for one that the host wants."""
    monkeypatch.setattr(cuda, "why_not_compiled", lambda: reason)
    host = {"optimizer": optimizer, "bf16": {"enabled": True}} if optimizer else {"bf16": {"enabled": True}}
    config = cuda.torch_adam_without_nvcc(lambda **_: host, None, (), {"optim_dict": optimizer})
    assert config["bf16"] == {"enabled": True}
    return config.get("optimizer")


def test_deepspeeds_adam_stays_where_it_can_be_compiled(monkeypatch):
    assert asked_for(ADAM, monkeypatch, None) == ADAM


def test_torchs_adam_keeps_the_configurations_numbers(monkeypatch):
    changed = asked_for(ADAM, monkeypatch, "there is no nvcc")
    assert changed == {"type": "AdamW", "params": {**ADAM["params"], "torch_adam": True, "fused": True}}
    assert "fused" not in ADAM["params"]


@pytest.mark.parametrize("other", [MUON, None])
def test_other_optimizers_are_left_alone(other, monkeypatch):
    assert asked_for(other, monkeypatch, "there is no nvcc") == other


@pytest.mark.parametrize("where", ["stay", "offload"])
def test_the_host_takes_torchs_steps_and_resumes_them(where, tmp_path):
    """In a process of its own: DeepSpeed takes hold of the whole process."""
    needs_its_accelerator()
    (said,) = printed(("-m", "tests.hook.adam_case", free_port(), 2, where, tmp_path))
    found = json.loads(said.strip().splitlines()[-1])
    assert (found["class"], found["fused"]) == ("torch.optim.adamw.AdamW", True)
    assert found["offloads"] == (where == "offload")
    assert found["moved"] > 0.02, "three steps of a rate of 0.01"
    assert found["apart"] < 1e-6
    assert found["resumed_apart"] == 0
