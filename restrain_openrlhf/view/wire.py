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
    return json.dumps(_plain(data), ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _plain(data: Any) -> Any:
    match data:
        case float() if not math.isfinite(data):
            return str(data)
        case dict():
            return {key: _plain(value) for key, value in data.items()}
        case list() | tuple():
            return [_plain(value) for value in data]
        case _ if dataclasses.is_dataclass(data):
            return {field.name: _plain(getattr(data, field.name)) for field in dataclasses.fields(data)}
    return data
