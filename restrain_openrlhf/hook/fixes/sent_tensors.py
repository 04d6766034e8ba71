"""Tensors on their way from the trainer to the models: sent as arrays instead of in torch's own files.

Ray pickles the tensors of the host's experience one by one (trainer/ray/launcher.py, async_run_method_batch). Torch
writes each as a file in memory, which takes longer than to copy what is in it; an array is only copied.
"""

from typing import Any

import numpy as np
import torch
from ray.util import register_serializer


def send_tensors_as_arrays() -> None:
    """Whatever this process sends through Ray from now on. Safe to repeat."""
    register_serializer(torch.Tensor, serializer=sent, deserializer=arrived)


def sent(tensor: torch.Tensor) -> Any:
    """An array; what torch itself would pickle of a tensor that NumPy cannot have, on a GPU or in bfloat16."""
    try:
        return tensor.numpy()
    except (TypeError, RuntimeError):
        return tensor.__reduce_ex__(5)  # type: ignore[no-untyped-call]


def arrived(sent: Any) -> torch.Tensor:
    """The tensor, in memory of its own: Ray's may not be written to."""
    if isinstance(sent, np.ndarray):
        return torch.tensor(sent)
    rebuild, arguments, *_ = sent
    tensor: torch.Tensor = rebuild(*arguments)
    return tensor
