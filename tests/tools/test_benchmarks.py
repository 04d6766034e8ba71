"""The files that benchmarks/scale.py makes are still those that the commands read."""

import importlib.util
import json

from restrain_openrlhf.evaluation.result import EvaluationProvenance
from restrain_openrlhf.reference import load_reference
from tests.conftest import ROOT


def test_its_reference_and_evaluation_are_read(tmp_path):
    spec = importlib.util.spec_from_file_location("scale", ROOT / "benchmarks" / "scale.py")
    scale = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scale)
    inputs = scale.Inputs(size=5, rollouts=2, words=6)
    inputs.write(tmp_path, "ref.jsonl evaluation/responses.jsonl")
    assert len(load_reference(tmp_path / "ref.jsonl").rows) == 5
    responses = tmp_path / "evaluation" / "responses.jsonl"
    assert EvaluationProvenance.of(responses).problems == 5
    assert len([json.loads(line) for line in responses.read_text().splitlines()]) == 5
