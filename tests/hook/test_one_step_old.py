"""Rollouts that are one step old, as asynchronous generation makes them: when the paper's importance ratio is there."""

import json

import pytest

from tests.processes import needs_its_accelerator, printed

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from restrain_openrlhf.config.host_flags import record
from restrain_openrlhf.machine.host_releases import installed

CORRECTIONS = ("token", "off")


@pytest.fixture(scope="module")
def steps():
    """A step by each, in a process of its own: DeepSpeed takes hold of the whole process."""
    needs_its_accelerator()
    if "algo.advantage.is_correction_level" not in record(installed()):
        pytest.skip("OpenRLHF before 0.11.2 has other corrections")
    (said,) = printed(("-m", "tests.hook.one_step_old_case", *CORRECTIONS))
    found = [json.loads(line) for line in said.splitlines() if line.startswith('{"')]
    return dict(zip(CORRECTIONS, found, strict=True))


def test_with_the_hosts_correction_the_ratio_is_against_the_policy_that_drew(steps):
    assert steps["token"]["furthest_ratio"] > 0.3
    assert steps["token"]["from_papers"] < 1e-5
    assert steps["token"]["from_as_new"] > 0.1


def test_without_it_they_are_trained_on_as_if_they_were_new(steps):
    """What docs/operations/one_gpu.md says of OpenRLHF's default."""
    assert steps["off"]["from_as_new"] < 1e-5
    assert steps["off"]["from_papers"] > 0.1
