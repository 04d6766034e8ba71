"""On the CPU stack vLLM has the policy's weights after every sync: its log-probabilities of given tokens say so."""

import json
from pathlib import Path

import pytest
import torch

from restrain_openrlhf.machine.devices import detect
from tests.processes import printed

pytest.importorskip("vllm", reason="needs the training stack (make install)")
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

# What rounding gives, in nats a token.
ROUNDING = {"float32": 1e-4, "bfloat16": 0.1}
CASES = ["tied/bfloat16", "untied/float32", "lora/float32"]


@pytest.fixture(scope="module")
def gaps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    if detect().has_gpus:
        pytest.skip("the CPU's own weight sync; on a GPU it is the host's")
    (said,) = printed(("-m", "tests.machine.cpu.synced_engines", tmp_path_factory.mktemp("models"), *CASES))
    rows = [json.loads(line) for line in said.splitlines() if line.startswith('{"case"')]
    return {row["case"]: row for row in rows}


@pytest.mark.parametrize("case", CASES)
def test_after_each_sync_vllms_log_probabilities_are_the_policys(gaps: dict[str, dict], case: str):
    found, rounding = gaps[case], ROUNDING[Path(case).name]
    assert found["before"] < rounding
    assert len(found["after"]) == 2
    assert max(found["after"]) < rounding
    assert found["moved"] > 5 * rounding, "the weights did change"


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("lora")])
def test_after_a_sync_vllm_computes_with_the_policys_bits_and_a_weight_that_is_left_out_is_seen(gaps, case: str):
    """Against an engine that loads the policy from a folder. vLLM has queries, keys and values in one weight."""
    found = gaps[case]
    assert found["weights"] > 10
    assert found["other"] == []
    # Where oneDNN has no bfloat16, vLLM computes with the weight itself, not with a packed copy, and both are listed.
    layer, is_packed = "model.layers.1.self_attn.qkv_proj", torch.ops.mkldnn._is_mkldnn_bf16_supported()
    own = [] if is_packed or Path(case).name == "float32" else [f"{layer}.weight"]
    assert sorted(found["other_without_one"]) == [f"{layer} (computed)", *own]
