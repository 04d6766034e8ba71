"""The columns of kept rollouts, in Arrow's types, and how a row holds a rollout and its group."""

from dataclasses import fields
from typing import Any

from restrain_openrlhf.errors import DataError
from restrain_openrlhf.kept.groups import KeptGroup, KeptRollout

OF_GROUP = tuple(field.name for field in fields(KeptGroup) if field.name != "rollouts")
# A rollout's fields and their columns: `class` is no name for a Python field.
OF_ROLLOUT = {field.name: {"label": "class"}.get(field.name, field.name) for field in fields(KeptRollout)}


def arrow() -> Any:
    """pyarrow with its Parquet part. Raises DataError where it is not installed."""
    try:
        import pyarrow.parquet  # noqa: PLC0415 - optional, and costs a moment
    except ImportError:
        raise DataError(
            "Kept rollouts are Parquet files, and pyarrow is not installed. Install it with "
            "`pip install restrain-openrlhf[data]`."
        ) from None
    return pyarrow


def schema() -> Any:
    """The columns of a file of kept rollouts, in order (docs/operations/running.md)."""
    pa = arrow()
    required = {
        "step": pa.int32(),
        "group": pa.int32(),
        "prompt_id": pa.string(),
        "prompt": pa.string(),
        "rollout": pa.int32(),
        "response": pa.string(),
        "finished": pa.bool_(),
        "trained": pa.bool_(),
        "majority_count": pa.int32(),
        "voters": pa.int32(),
        "prompt_weight": pa.float64(),
        "penalized": pa.bool_(),
    }
    optional = {
        "answer": pa.string(),
        "class": pa.int32(),
        "class_votes": pa.int32(),
        "label_weight": pa.float64(),
        "advantage_pos": pa.float64(),
        "advantage_neg": pa.float64(),
        "log_prob_gap": pa.float64(),
        "entropy": pa.float64(),
    }
    every = [pa.field(name, kind, nullable=False) for name, kind in required.items()]
    return pa.schema([*every, *(pa.field(name, kind) for name, kind in optional.items())])


def row_of(group: KeptGroup, rollout: KeptRollout) -> dict[str, Any]:
    """One row, by column."""
    of_group = {name: getattr(group, name) for name in OF_GROUP}
    return of_group | {column: getattr(rollout, name) for name, column in OF_ROLLOUT.items()}
