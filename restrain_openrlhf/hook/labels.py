"""Wraps preprocess_data: training prompts need no column of answers where evaluation problems have one."""

from collections.abc import Callable
from typing import Any

LABEL_KEY_POSITION = 3


def preprocess_data(
    wrapped: Callable[..., Any], _instance: object, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A row without the label column has the empty label, as where the host is given no data.label_key.

    The host (datasets/prompts_dataset.py) reads one column name in the training and in the evaluation set, so that
    evaluating during label-free training would ask for answers in the training file. A method that reads gold refuses
    the empty label.
    """
    row = args[0] if args else kwargs.pop("data")
    label_key = args[LABEL_KEY_POSITION] if len(args) > LABEL_KEY_POSITION else kwargs.get("label_key")
    if label_key and label_key not in row:
        row = {**row, label_key: ""}
    return wrapped(row, *args[1:], **kwargs)
