"""Prints how far a linear layer's products and gradients are from float64's; run by test_bfloat16.py."""

import json

import numpy as np
import torch
from numpy.typing import NDArray

from restrain_openrlhf.machine.cpu.host import vllm_linear
from restrain_openrlhf.machine.devices import detect


def exact(tensor: torch.Tensor) -> NDArray[np.float64]:
    return tensor.detach().double().numpy()


def gap(found: torch.Tensor | None, right: NDArray[np.float64]) -> float:
    """The largest difference, as a share of the largest right value."""
    assert found is not None
    return float((np.abs(exact(found) - right) / np.abs(right).max()).max())


def products(dtype: torch.dtype) -> dict[str, object]:
    """Of torch's layer, forward and backward, and of vLLM's, on random numbers: 231 rows, 96 columns in, 40 out."""
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

    layer = torch.nn.Linear(96, 40, dtype=dtype)
    x = torch.randn(7, 33, 96, dtype=dtype, requires_grad=True)
    gradient = torch.randn(7, 33, 40, dtype=dtype)
    out = layer(x)
    out.backward(gradient)
    engine = torch.nn.Linear(96, 40, dtype=dtype).requires_grad_(False)
    engine.weight.copy_(layer.weight.detach())
    dispatch_cpu_unquantized_gemm(engine, remove_weight=False)
    right, rows = exact(x) @ exact(layer.weight).T + exact(layer.bias), exact(gradient).reshape(-1, 40)
    from_engine = engine.cpu_linear(x.detach().reshape(-1, 96), engine.weight, layer.bias.detach())
    return {
        "types": sorted({str(each.dtype) for each in (out, x.grad, layer.weight.grad, layer.bias.grad)}),
        "is_ours": getattr(engine.cpu_linear, "__module__", "") == vllm_linear.__module__,
        "out": gap(out, right),
        "input gradient": gap(x.grad, exact(gradient) @ exact(layer.weight)),
        "weight gradient": gap(layer.weight.grad, rows.T @ exact(x).reshape(-1, 96)),
        "bias gradient": gap(layer.bias.grad, rows.sum(0)),
        "vLLM's": gap(from_engine, right.reshape(-1, 40)),
    }


if __name__ == "__main__":
    detect().install()
    torch.manual_seed(0)
    print(json.dumps({str(dtype): products(dtype) for dtype in (torch.bfloat16, torch.float32)}))
