"""What benchmarks/ make and measure: files that the commands read, and a weight sync's bytes and memory."""

import json

import pytest

from restrain_openrlhf.evaluation.result import EvaluationProvenance
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.reference import load_reference
from tests.conftest import ROOT, module_of

BENCHMARKS = ROOT / "benchmarks"


def test_its_reference_and_evaluation_are_read(tmp_path):
    inputs = module_of(BENCHMARKS / "scale.py").Inputs(size=5, rollouts=2, words=6)
    inputs.write(tmp_path, "ref.jsonl evaluation/responses.jsonl")
    assert len(load_reference(tmp_path / "ref.jsonl").rows) == 5
    responses = tmp_path / "evaluation" / "responses.jsonl"
    assert EvaluationProvenance.of(responses).problems == 5
    assert len([json.loads(line) for line in responses.read_text().splitlines()]) == 5


def test_50_weight_syncs_send_views_of_one_buffer_as_the_weights_alone_and_keep_nothing():
    """By the kernel's count of bytes and memory, between processes; a weight changes as soon as it is sent."""
    pytest.importorskip("torch", reason="needs the training stack: make install")
    if detect().has_gpus:
        pytest.skip("the CPU's own weight sync; on a GPU it is the host's")
    weight_sync = module_of(BENCHMARKS / "weight_sync.py")
    sizes = weight_sync.Sizes(engines=2, weights=20, size=500_000, syncs=50)
    policy, *engines = found = weight_sync.measure(sizes, ROOT)
    assert len(engines) == sizes.engines
    assert 1 <= policy.sent / sizes.syncs / sizes.of_a_sync <= 1.1
    assert [each.wrong for each in found] == [0, 0, 0]
    assert max(each.peak for each in found) < sizes.weights * sizes.size
