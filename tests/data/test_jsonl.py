"""Strict reading and atomic writing of JSON Lines, and reading of Parquet in their place."""

import pytest
from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.data import jsonl
from restrain_openrlhf.data.jsonl import FollowedFile, read_rows, write_rows
from restrain_openrlhf.data.outputs import whole_file
from restrain_openrlhf.errors import DataError
from tests.command_line import refused


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
        ("[1]\n", "line 1: is no object, but list"),
        (
            '{"id": 1, "text": "\\ud83d\\ude00 is whole"}\n{"id": 2, "text": "\\ud83d"}\n',
            "line 2: not valid JSON",
        ),
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


ROLLOUTS = [
    {"id": "a", "problem": "1+1=", "responses": [r"\boxed{2}", "?"], "answer": "2", "options": None},
    {"id": "b", "problem": "2+2=", "responses": [r"\boxed{4}", r"\boxed{4.0}"], "answer": None, "options": ["4", "5"]},
]


@pytest.fixture
def parquet():
    return pytest.importorskip("pyarrow.parquet", reason="needs pyarrow: pip install restrain-openrlhf[data]")


@pytest.fixture
def as_parquet(parquet, tmp_path):
    def write(name, rows, **options):
        parquet.write_table(jsonl.arrow().Table.from_pylist(rows), tmp_path / name, **options)
        return tmp_path / name

    return write


def test_what_is_wrong_in_a_parquet_file_is_named_by_its_row(as_parquet, tmp_path):
    bad = as_parquet("bad.parquet", [ROLLOUTS[0], {**ROLLOUTS[1], "problem": None}])
    out = tmp_path / "out.jsonl"
    assert "bad.parquet, row 2: problem: Input should be a valid string. Fix or remove the row." in refused(
        "score", bad, "--out", out
    )
    twice = as_parquet("twice.parquet", [ROLLOUTS[0]] * 2)
    assert "row 1 and row 2 have the same id 'a'" in refused("score", twice, "--out", out)
    (tmp_path / "no.parquet").write_bytes(b"PAR1")
    assert "no.parquet: is not a complete Parquet file" in refused("score", tmp_path / "no.parquet", "--out", out)
    assert "absent.parquet: no such file" in refused("score", tmp_path / "absent.parquet", "--out", out)
    assert "written as JSON Lines, and not as Parquet" in refused("score", twice, "--out", tmp_path / "o.parquet")
    assert not out.exists()


@pytest.mark.parametrize("damaged", ['{"step": 1, "vo', "[1]", "\0\0\0"])
def test_a_damaged_line_of_a_followed_file_is_told_and_a_last_one_without_an_end_is_not_read(tmp_path, damaged):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1}}\n{damaged}')
    assert list(FollowedFile(path).new_rows()) == [{"step": 1}]
    path.write_text(f'{damaged}\n{{"step": 1}}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl: has a line that is no JSON object: .* Remove the line"):
        list(FollowedFile(path).new_rows())
