"""Gradients of many micro-batches: added up in fp32 where that is asked for, by DeepSpeed's own engine."""

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.processes import needs_its_accelerator

pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

CASES = {
    "ZeRO 2": {"dtype": "fp32"},
    "ZeRO 2, as under dynamic batching": {"dtype": "fp32", "managed": False},
    "ZeRO 1": {"dtype": "fp32", "stage": 1},
    "ZeRO 1, as under dynamic batching": {"dtype": "fp32", "stage": 1, "managed": False},
    "ZeRO 3": {"dtype": "fp32", "stage": 3},
    "OpenRLHF's default": {},
    "Adam on the host": {"dtype": "fp32", "offload": True},
}


@pytest.fixture(scope="module")
def distances():
    """From 512 micro-batches' own gradients, added up in fp64; relative to the sum's norm."""
    needs_its_accelerator()
    words = [sys.executable, "-m", "tests.hook.accumulated", *map(json.dumps, CASES.values())]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("distance")]
    return dict(zip(CASES, found, strict=True))


@pytest.mark.parametrize("case", ["ZeRO 2", "ZeRO 2, as under dynamic batching", "ZeRO 3"])
def test_gradients_are_added_up_in_fp32_where_that_is_asked_for(distances, case):
    assert distances[case] < 1e-6


@pytest.mark.parametrize("case", ["ZeRO 1", "ZeRO 1, as under dynamic batching"])
def test_under_zero_1_the_sum_is_rounded_once(distances, case):
    """To the weights' type, when it is reduced over the processes."""
    assert distances[case] < 2**-9


def test_without_it_the_sum_is_in_the_weights_type(distances):
    """The presets ask for fp32."""
    assert distances["OpenRLHF's default"] > 0.03


def test_with_adam_on_the_host_it_has_no_effect_which_is_why_the_two_are_refused(distances):
    assert distances["Adam on the host"] > 0.03
