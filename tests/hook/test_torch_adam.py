"""Where nothing compiles CUDA code, OpenRLHF's optimizer is torch's fused AdamW, offloaded or not."""

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from restrain_openrlhf.machine import cuda  # noqa: E402

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
