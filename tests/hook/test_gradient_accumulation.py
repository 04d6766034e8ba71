"""Gradients of many micro-batches: added up in fp32 where that is asked for, by DeepSpeed's own engine."""

import json
import os
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
    "Adam on the host, ZeRO 1": {"dtype": "fp32", "stage": 1, "offload": True},
    "Adam on the host, ZeRO 1, as under dynamic batching": {
        "dtype": "fp32",
        "stage": 1,
        "managed": False,
        "offload": True,
    },
    "Adam on the host, ZeRO 2": {"dtype": "fp32", "offload": True},
    "Adam on the host, ZeRO 3": {"dtype": "fp32", "stage": 3, "offload": True},
}
OF_TWO_PROCESSES = {
    "Adam on the host, ZeRO 1": {"dtype": "fp32", "stage": 1, "offload": True, "count": 16},
    "Adam on the host, ZeRO 3": {"dtype": "fp32", "stage": 3, "offload": True, "count": 16},
    "ZeRO 2": {"dtype": "fp32", "count": 16},
}


@pytest.fixture(scope="module")
def distances():
    """From 512 micro-batches' own gradients, added up in fp64; relative to the sum's norm."""
    return dict(zip(CASES, distances_of(program(CASES)), strict=True))


@pytest.fixture(scope="module")
def distances_of_two_processes(tmp_path_factory):
    """Of 16 micro-batches that two processes have eight each of."""
    store = str(tmp_path_factory.mktemp("store") / "store")
    both = [program(OF_TWO_PROCESSES, RANKS="2", RANK_OF_THEM=rank, STORE=store) for rank in ("0", "1")]
    found, other = map(distances_of, both)
    assert found == other
    return dict(zip(OF_TWO_PROCESSES, found, strict=True))


def program(cases, **environment):
    needs_its_accelerator()
    words = [sys.executable, "-m", "tests.hook.accumulated", *map(json.dumps, cases.values())]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(words, text=True, cwd=ROOT, env={**os.environ, **environment}, **pipes)


def distances_of(process):
    said, errors = process.communicate()
    assert process.returncode == 0, errors[-3000:]
    return [float(line.split()[1]) for line in said.splitlines() if line.startswith("distance")]


@pytest.mark.parametrize(
    "case",
    [
        "ZeRO 2",
        "ZeRO 2, as under dynamic batching",
        "ZeRO 3",
        "Adam on the host, ZeRO 1",
        "Adam on the host, ZeRO 1, as under dynamic batching",
        "Adam on the host, ZeRO 3",
    ],
)
def test_gradients_are_added_up_in_fp32_where_that_is_asked_for(distances, case):
    assert distances[case] < 1e-6


@pytest.mark.parametrize("case", ["ZeRO 1", "ZeRO 1, as under dynamic batching"])
def test_under_zero_1_the_sum_is_rounded_once(distances, case):
    """To the weights' type, when it is reduced over the processes."""
    assert distances[case] < 2**-9


def test_without_it_the_sum_is_in_the_weights_type(distances):
    """The presets ask for fp32."""
    assert distances["OpenRLHF's default"] > 0.03


def test_with_adam_on_the_host_it_has_no_effect_under_zero_2_which_is_why_the_two_are_refused(distances):
    assert distances["Adam on the host, ZeRO 2"] > 0.03


@pytest.mark.parametrize("case", ["ZeRO 2", "Adam on the host, ZeRO 3"])
def test_two_processes_use_the_mean_of_their_gradients(distances_of_two_processes, case):
    """Which is reduced in bf16."""
    assert distances_of_two_processes[case] < 2**-8


def test_under_zero_1_with_adam_on_the_host_they_do_not_which_is_why_that_is_refused(distances_of_two_processes):
    assert distances_of_two_processes["Adam on the host, ZeRO 1"] > 0.3
