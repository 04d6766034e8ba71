"""The stand-ins for CUDA: each is checked against the module that it adapts, and reached."""

import importlib
import sys
from types import ModuleType

import pytest

pytest.importorskip("openrlhf", reason="needs the installed OpenRLHF")

from restrain_openrlhf.machine.devices import detect

if detect().name != "cpu":
    pytest.skip("the CUDA stack is installed; these adapt the CPU's", allow_module_level=True)
detect().install()

from restrain_openrlhf.errors import HostError  # noqa: E402
from restrain_openrlhf.machine.cpu.host import PATCHES  # noqa: E402
from restrain_openrlhf.machine.cuda import EXTENSION_LOCK  # noqa: E402
from restrain_openrlhf.machine.patching import (  # noqa: E402
    Replacement,
    expect,
    expect_no_more,
    load,
    parameters,
)

EVERY = [*PATCHES, EXTENSION_LOCK[-1]]


@pytest.mark.parametrize("patch", EVERY, ids=lambda patch: f"{patch.module}.{patch.qualname}")
def test_a_module_is_adapted_where_its_callables_take_what_is_expected(patch):
    """Checked as it is imported, before anything is changed; here it would be refused already."""
    importlib.import_module(patch.module)
    patch.check()
    assert patch.is_on()
    taken = parameters(load(patch.ours))
    assert len(taken.split(", ")) == (len(patch.takes.split(", ")) if isinstance(patch, Replacement) else 4)


def test_a_buffer_is_for_the_cpu():
    import torch
    from openrlhf.trainer.ppo_utils import NaiveReplayBuffer

    assert NaiveReplayBuffer(3).target_device == torch.device("cpu")
    assert torch.cuda.current_device() == torch.device("cpu")


def beside(*_):
    return "ours"


def test_a_module_with_other_parameters_is_refused_and_left_as_it_is(monkeypatch):
    module = ModuleType("adapted_by_us")
    module.send, module.take = (lambda tensor, rank: "host"), (lambda tensor: "host")
    monkeypatch.setitem(sys.modules, "adapted_by_us", module)
    right = Replacement("adapted_by_us", "take", "(tensor)", f"{__name__}:beside")
    wrong = Replacement("adapted_by_us", "send", "(tensor, peer)", f"{__name__}:beside")
    with pytest.raises(HostError, match=r"adapted_by_us\.send takes \(tensor, rank\), .* written for \(tensor, peer\)"):
        expect([right, wrong])
    assert (module.take(1), module.send(1, 2)) == ("host", "host")
    expect_no_more([wrong])
    expect([right])
    assert module.take(1) == "ours"
    expect_no_more([right])
    assert module.take(1) == "host"
