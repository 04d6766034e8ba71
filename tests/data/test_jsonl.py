"""Strict reading and atomic writing of JSON Lines."""

import pytest
from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.data.jsonl import read_rows, write_rows
from restrain_openrlhf.data.outputs import whole_file
from restrain_openrlhf.errors import DataError


class Row(BaseModel):
    model_config = ConfigDict(extra="forbid")
    id: int
    text: str = ""


def test_round_trip_keeps_order_and_unicode(tmp_path):
    rows = [Row(id=2, text="π ≈ 3\u2028x"), Row(id=1)]
    write_rows(tmp_path / "deep" / "rows.jsonl", rows)
    assert read_rows(tmp_path / "deep" / "rows.jsonl", Row) == rows


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"id": 1}\n{"id": 2\n', "line 2: not valid JSON"),
        ('{"id": 1}\n\n{"id": "x"}\n', "line 3: id"),
        ('{"id": 1, "extra": 2}\n', "line 1: extra"),
        ("[1]\n", "line 1"),
        ("[" * 100_000, "line 1: not valid JSON"),
    ],
)
def test_a_damaged_line_is_named(tmp_path, content, message):
    (tmp_path / "rows.jsonl").write_text(content)
    with pytest.raises(DataError) as error:
        read_rows(tmp_path / "rows.jsonl", Row)
    assert message in str(error.value)
    assert "rows.jsonl" in str(error.value)


def test_other_files_get_a_clear_error(tmp_path):
    (tmp_path / "latin.jsonl").write_bytes(b'{"id": 1, "text": "\xe9"}')
    for name, message in (("absent.jsonl", "no such file"), ("latin.jsonl", "UTF-8"), (".", "folder")):
        with pytest.raises(DataError, match=message):
            read_rows(tmp_path / name, Row)


def test_a_failure_while_writing_leaves_the_old_file(tmp_path):
    path = tmp_path / "rows.jsonl"
    write_rows(path, [Row(id=1)])

    def failing():
        yield Row(id=2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_rows(path, failing())
    assert read_rows(path, Row) == [Row(id=1)]
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_do_not_meet(tmp_path):
    """Both with the number of this process, as pods have that share a volume."""
    path = tmp_path / "rows.jsonl"
    with whole_file(path) as first:
        first.write("a" * 10)
        with whole_file(path) as second:
            second.write("b")
        assert path.read_text() == "b"
    assert path.read_text() == "a" * 10
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_not_written_over(tmp_path):
    with pytest.raises(DataError, match="is a folder"):
        write_rows(tmp_path, [Row(id=1)])
    assert list(tmp_path.iterdir()) == []
    assert not list(tmp_path.parent.glob("*.partial"))
