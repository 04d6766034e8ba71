"""DeepSpeed's Adam on a CPU, compiled and run: a step after a restart is the step that would have been taken."""

from copy import deepcopy

import pytest

torch = pytest.importorskip("torch", reason="needs the training stack (make install)")
pytest.importorskip("deepspeed", reason="needs the training stack (make install)")
pytestmark = [pytest.mark.host, pytest.mark.e2e, pytest.mark.timeout(900)]

from restrain_openrlhf.machine.devices import detect  # noqa: E402


def optimizer_of(weights):
    from deepspeed.ops.adam import FusedAdam

    return FusedAdam([weights], lr=1e-4, betas=(0.9, 0.95))


def take(optimizer, steps):
    for step in steps:
        optimizer.param_groups[0]["params"][0].grad = torch.randn(10_000, generator=torch.Generator().manual_seed(step))
        optimizer.step()


def test_a_step_does_not_depend_on_when_the_process_was_started():
    device = detect()
    if device.has_gpus:
        pytest.skip("a stand-in for where there is no CUDA")
    device.install()
    start = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    whole = optimizer_of(torch.nn.Parameter(start.clone()))
    take(whole, range(5))
    saved, at = deepcopy(whole.state_dict()), whole.param_groups[0]["params"][0].detach().clone()
    take(whole, range(5, 9))
    take(optimizer_of(torch.nn.Parameter(start.clone())), range(2))
    resumed = optimizer_of(torch.nn.Parameter(at))
    resumed.load_state_dict(saved)
    take(resumed, range(5, 9))
    assert torch.equal(resumed.param_groups[0]["params"][0], whole.param_groups[0]["params"][0])
