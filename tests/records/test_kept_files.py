"""Kept rollouts: written whole, read back as they were; what is no file of theirs is refused."""

import pyarrow
import pyarrow.parquet
import pytest

from restrain_openrlhf.errors import DataError
from restrain_openrlhf.records.kept import (
    KeptGroup,
    KeptRollout,
    as_parquet,
    kept_files,
    read_kept,
    step_file,
    write_step,
)

ONE = KeptRollout(
    rollout=0,
    response="2 + 2 = \\boxed{4}",
    finished=True,
    answer="4",
    label=0,
    class_votes=2,
    label_weight=1.0,
    trained=True,
    advantage_pos=0.75,
    advantage_neg=-0.25,
    log_prob_gap=0.001,
    entropy=0.5,
)
VOTER = KeptRollout(
    rollout=1, response="", finished=False, answer=None, label=None, class_votes=None, label_weight=None, trained=False
)


def group(step=3, place=5, prompt="2 + 2 = ?", rollouts=(ONE, VOTER)):
    return KeptGroup(
        step=step,
        group=place,
        prompt_id="0" * 64,
        prompt=prompt,
        majority_count=1,
        voters=2,
        prompt_weight=0.6,
        penalized=0.25,
        rollouts=rollouts,
    )


def test_what_is_written_is_read(tmp_path):
    groups = {1: [group(1, 0), group(1, 7, prompt="∑ \\frac{1}{2} <b>")], 12: [group(12, 2)]}
    for step, kept in groups.items():
        write_step(tmp_path, step, as_parquet(kept))
    assert list(read_kept(tmp_path)) == [*groups[1], *groups[12]]
    assert list(kept_files(tmp_path)) == [1, 12]
    assert step_file(tmp_path, 12).name == "step-000012.parquet"
    assert sorted(path.name for path in (tmp_path / "rollouts").iterdir()) == [
        "step-000001.parquet",
        "step-000012.parquet",
    ]


def test_any_reader_of_parquet_sees_the_columns(tmp_path):
    rows = pyarrow.parquet.read_table(write_step(tmp_path, 3, as_parquet([group()]))).to_pylist()
    assert [row["class"] for row in rows] == [0, None]
    assert [row["prompt"] for row in rows] == ["2 + 2 = ?"] * 2


def test_a_folder_without_rollouts_says_how_to_keep_them(tmp_path):
    with pytest.raises(DataError, match=r"rollouts\.keep=8"):
        list(read_kept(tmp_path))


@pytest.mark.parametrize("content", [b"PAR1 and something else", None])
def test_a_damaged_file_is_named(tmp_path, content):
    path = write_step(tmp_path, 3, as_parquet([group()]))
    path.write_bytes(path.read_bytes()[:-20] if content is None else content)
    with pytest.raises(DataError, match=r"step-000003.parquet: is not a complete Parquet file"):
        list(read_kept(tmp_path))


@pytest.mark.parametrize("columns", [{"step": [1]}, None])
def test_a_file_of_something_else_is_refused(tmp_path, columns):
    path = write_step(tmp_path, 3, as_parquet([group()]))
    table = pyarrow.parquet.read_table(path)
    other = pyarrow.table(columns) if columns else table.set_column(0, "step", table["step"].cast("int64"))
    pyarrow.parquet.write_table(other, path)
    with pytest.raises(DataError, match=r"does not have the columns of kept rollouts, but step"):
        list(read_kept(tmp_path))
