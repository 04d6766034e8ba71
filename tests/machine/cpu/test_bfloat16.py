"""Where a processor has no bfloat16 instructions, products are taken in fp32 and rounded once: checked in float64."""

import json

import pytest

pytest.importorskip("vllm", reason="needs the training stack (make install)")

from restrain_openrlhf.machine.devices import detect
from tests.processes import printed

if detect().name != "cpu":
    pytest.skip("the CUDA stack is installed; these adapt the CPU's", allow_module_level=True)

# A bfloat16 has 8 bits, so the nearest one is at most a 256th away.
ONE_ROUNDING = 2**-8


@pytest.fixture(scope="module", params=["AVX2", "ALL"])
def products(request: pytest.FixtureRequest) -> dict[str, dict]:
    """What a processor without AVX-512 computes, and what this one does, whatever it has."""
    (said,) = printed(("-W", "ignore", "-m", "tests.machine.cpu.products"), ONEDNN_MAX_CPU_ISA=request.param)
    found: dict[str, dict] = json.loads(said.splitlines()[-1])
    if request.param == "AVX2":
        assert found["torch.bfloat16"]["is_ours"], "without AVX-512, vLLM's products are ours"
    return found


@pytest.mark.parametrize(("dtype", "rounding"), [("torch.bfloat16", ONE_ROUNDING), ("torch.float32", 1e-6)])
def test_products_and_their_gradients_are_right_to_one_rounding(products: dict[str, dict], dtype: str, rounding: float):
    found = dict(products[dtype])
    assert found.pop("types") == [dtype]
    if dtype == "torch.float32":
        assert not found["is_ours"], "fp32 is left as it is"
    del found["is_ours"]
    assert {name: gap for name, gap in found.items() if not gap <= rounding} == {}
