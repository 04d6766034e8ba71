"""Gradients of many micro-batches: added up in fp32 where that is asked for, by DeepSpeed's own engine."""

import json

import pytest

from tests.processes import needs_its_accelerator, printed

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
    (found,) = distances_of(CASES, 1)
    return found


@pytest.fixture(scope="module")
def distances_of_two_processes(tmp_path_factory):
    """Of 16 micro-batches that two processes have eight each of."""
    found, other = distances_of(OF_TWO_PROCESSES, 2, STORE=str(tmp_path_factory.mktemp("store") / "store"))
    assert found == other
    return found


def distances_of(cases, ranks, **store):
    needs_its_accelerator()
    words = ("-m", "tests.hook.accumulated", ranks)
    said = printed(*((*words, rank, *map(json.dumps, cases.values())) for rank in range(ranks)), **store)
    found = [[float(line.split()[1]) for line in each.splitlines() if line.startswith("distance")] for each in said]
    return [dict(zip(cases, each, strict=True)) for each in found]


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
