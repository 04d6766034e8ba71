"""The JSON that the page reads: plain ASCII, whatever the rollouts hold."""

import dataclasses
import json
import math
from typing import Any


def as_json(data: Any) -> str:
    """Dataclasses, mappings and sequences as JSON.

    ASCII alone, so that a lone surrogate of a response travels as an escape. JSON has no word for NaN and infinities:
    the page gets them as text and shows them.
    """
    try:
        return _dumped(data)
    except ValueError:
        return _dumped(_with_words(data))


def _dumped(data: Any) -> str:
    return json.dumps(data, default=vars, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _with_words(data: Any) -> Any:
    """The data with text for each number that JSON has no word for."""
    match data:
        case float() if not math.isfinite(data):
            return str(data)
        case dict():
            return {key: _with_words(value) for key, value in data.items()}
        case list() | tuple():
            return [_with_words(value) for value in data]
        case _ if dataclasses.is_dataclass(data):
            return _with_words(vars(data))
    return data
