"""Kept rollouts: what a run keeps of its groups, one Parquet file a step, written and read here."""

from restrain_openrlhf.records.kept.files import (
    FOLDER,
    as_parquet,
    drop_from,
    kept_bytes,
    kept_files,
    read_file,
    read_kept,
    step_file,
    write_step,
)
from restrain_openrlhf.records.kept.groups import KeptGroup, KeptRollout

__all__ = [
    "FOLDER",
    "KeptGroup",
    "KeptRollout",
    "as_parquet",
    "drop_from",
    "kept_bytes",
    "kept_files",
    "read_file",
    "read_kept",
    "step_file",
    "write_step",
]
