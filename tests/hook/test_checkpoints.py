"""A checkpoint that would not fit on the disk is refused before OpenRLHF deletes an older one."""

import shutil
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from restrain_openrlhf.errors import CheckpointError
from restrain_openrlhf.hook.checkpoints import checkpoint_bytes, save_ckpt


@dataclass
class Parameter:
    """A torch parameter; `elements` is what numel() says."""

    elements: int
    requires_grad: bool = True

    def numel(self):
        return self.elements


def sharded(elements, requires_grad=True):
    """As DeepSpeed's ZeRO 3 has it: the tensor is empty, its size is in ds_numel."""
    made = Parameter(0, requires_grad)
    made.ds_numel = elements
    return made


def test_a_checkpoint_has_fourteen_bytes_for_every_trained_parameter_and_a_tenth_more():
    assert checkpoint_bytes([Parameter(600), Parameter(400)]) == 15_400


def test_parameters_that_zero_3_has_sharded_weigh_as_much():
    assert checkpoint_bytes([sharded(600), sharded(400)]) == 15_400


def test_frozen_parameters_are_left_out():
    assert checkpoint_bytes([Parameter(1000, requires_grad=False), sharded(100)]) == 1_540


def saving(monkeypatch, folder, parameters, free):
    """What `save_ckpt` lets the host do where so many bytes are free."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=free))
    saved = []
    model = SimpleNamespace(parameters=lambda: parameters)
    strategy = SimpleNamespace(_unwrap_model=lambda engine: engine)
    save_ckpt(lambda *args, **_: saved.append(args), strategy, (model, str(folder)), {})
    return saved


@pytest.mark.parametrize("make", [Parameter, sharded])
def test_a_disk_that_is_too_full_is_told_before_anything_is_written(monkeypatch, tmp_path, make):
    eight_billion = [make(8_000_000_000)]
    with pytest.raises(CheckpointError, match=r"needs about 123.2 GB, 120.0 GB are free\. Free some space"):
        saving(monkeypatch, tmp_path / "new", eight_billion, free=120_000_000_000)
    assert len(saving(monkeypatch, tmp_path / "new", eight_billion, free=124_000_000_000)) == 1
