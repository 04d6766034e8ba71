"""Files of one's own, as people have them: every kind gives the same from JSON Lines and Parquet."""

import json
import sqlite3

import pytest

pa = pytest.importorskip("pyarrow", reason="needs the data extra")
import pyarrow.parquet  # noqa: E402

from restrain_openrlhf.answers import parse_kind  # noqa: E402
from restrain_openrlhf.answers.kind import parse_cell  # noqa: E402
from restrain_openrlhf.data.benchmarks import load_benchmark  # noqa: E402
from restrain_openrlhf.errors import DataError  # noqa: E402
from test_time.problems import Source, load_problems  # noqa: E402
from tests.command_line import restrain  # noqa: E402
from tests.conftest import needs_bubblewrap  # noqa: E402

HALF = 'def half(x: int) -> float:\n    """Half of x.\n    >>> half(3)\n    1.5\n    """\n'
CAPITAL = "Which is the capital of France?"
# Of each kind a row without its responses, these, and the classes that they are by hand.
FILES = {
    "choice": (
        {"problem": CAPITAL, "options": ["Lyon", "Paris", "Nice"], "answer": "B"},
        (["The answer is B", "(B)", "Paris", "A"], [0, 0, 0, 1]),
    ),
    "text": (
        {"problem": "Which city was Eboracum?", "answer": "York", "aliases": ["York UA"]},
        (["The answer is York.", "york", "York UA", "Leeds"], [0, 0, 1, 2]),
    ),
    "number": (
        {"problem": "How many?", "answer": "007"},
        (["7", "The answer is 7.0", "007", "6"], [0, 0, 0, 1]),
    ),
    "json": (
        {"problem": "As JSON?", "answer": '{"city": "Paris"}'},
        (['{"city": "Paris"}', '{"city":"Paris"}', "[1]", "none"], [0, 0, 1, None]),
    ),
    # It reads no column here, so that gold's tests have to find the problem by themselves.
    "code": (
        {"problem": HALF, "answer": "assert half(3) == 1.5\nassert half(4) == 2"},
        (["    return x / 2\n", "    return 0.5 * x\n", "    return x // 2\n", "    return x +\n"], [0, 0, 1, None]),
    ),
    "sql": (
        {"problem": "Which city?", "database": "", "answer": "SELECT 'Rome'"},
        (["SELECT name FROM city", "SELECT 'Rome'", "SELECT 1", "DROP TABLE city"], [0, 0, 1, None]),
    ),
}
FORMATS = ("jsonl", "parquet")


@pytest.fixture(params=FILES)
def own(request, tmp_path):
    """The kind, its classes, and the two files; the database where it needs one."""
    if request.param == "code":
        needs_bubblewrap()
    row, (responses, classes) = FILES[request.param]
    if "database" in row:
        database = tmp_path / "geo.sqlite"
        with sqlite3.connect(database) as made:
            made.executescript("CREATE TABLE city (name TEXT); INSERT INTO city VALUES ('Rome')")
        row = {**row, "database": str(database)}
    written(tmp_path, row, responses)
    return request.param, classes, tmp_path


def written(folder, row, responses):
    whole = {"id": 1, **row, "responses": responses}
    (folder / "own.jsonl").write_text(json.dumps(whole) + "\n")
    pyarrow.parquet.write_table(pa.Table.from_pylist([whole]), folder / "own.parquet")


def test_scores_are_the_same_and_as_by_hand(own):
    kind, classes, folder = own
    for suffix in FORMATS:
        made = folder / f"own.{suffix}"
        done = restrain(
            "score", made, "--method", "ttrl", "--answers", kind, "--out", folder / f"{suffix}.scores.jsonl"
        )
        assert done.returncode == 0, done.stderr
    (text, *others) = {(folder / f"{suffix}.scores.jsonl").read_text() for suffix in FORMATS}
    assert not others
    assert json.loads(text)["classes"] == classes


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("Lyon|Paris", 'must be a list, which a cell of a CSV file has as JSON, such as ["one", "two"]'),
        ("['Lyon' 'Paris']", "must be a list"),
        ('["Lyon", "Paris"', "must be a list"),
        ('["Lyon", ["Paris"]]', "in its column 'options': Input should be a valid string"),
    ],
)
def test_a_cell_that_is_no_list_is_told(tmp_path, options, said):
    written(tmp_path, {"problem": CAPITAL, "options": options}, ["B"])
    done = restrain("score", tmp_path / "own.jsonl", "--answers", "choice", "--out", tmp_path / "out.jsonl")
    assert done.returncode == 2
    assert "own.jsonl, line 1: " in done.stderr
    assert said in done.stderr


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ('["a", "b"]', ["a", "b"]),
        ("['a', \"it's\"]", ["a", "it's"]),
        ('{"A": "x"}', {"A": "x"}),
        ("['a' 'b']", "['a' 'b']"),
        ("[" * 10_000, "[" * 10_000),
        ("a", "a"),
        ("", ""),
        (None, None),
        (["a"], ["a"]),
    ],
)
def test_a_cell_holds_a_list_as_json_or_as_python_writes_it(cell, value):
    assert parse_cell(cell) == value


def test_an_empty_cell_is_a_column_that_the_row_has_not(tmp_path, write_jsonl):
    rows = [
        {"problem": CAPITAL, "options": '["Lyon", "Paris"]', "unit": "", "answers": "choice", "responses": ["B"]},
        {"problem": "How far?", "options": "", "unit": "", "answers": "number", "responses": ["5 km"]},
        {"problem": "Who?", "options": "", "unit": "", "answers": "", "responses": ["Ada"]},
    ]
    mixed = write_jsonl("mixed.jsonl", [{"id": place, **row} for place, row in enumerate(rows)])
    words = ("--answers", "{name: mixed, default: text}", "--out", tmp_path / "out.jsonl")
    done = restrain("score", mixed, *words)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line)["answers"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert found == [["Paris"], ["5"], ["Ada"]]


def test_a_csv_file_has_its_options(tmp_path):
    (tmp_path / "own.csv").write_text('id,question,options,answer\n1,Which?,"[""Po"", ""Ems""]",B\n')
    (problem,) = load_benchmark(str(tmp_path / "own.csv"), asked=parse_kind({"name": "choice"})).problems
    assert problem.problem == "Which?\n(A) Po\n(B) Ems"


def test_choices_in_columns_of_their_own_are_told(tmp_path):
    (tmp_path / "m.csv").write_text("problem,A,B,C,D,answer\nWhich?,Po,Ems,Don,Isar,B\n")
    with pytest.raises(
        DataError, match="without the choices in A, B, C, D, which have to be a list in the column `opt"
    ):
        load_benchmark(str(tmp_path / "m.csv"), asked=parse_kind({"name": "choice"}))
    with pytest.raises(DataError, match="Give them as a list in the column `options`"):
        load_problems(Source(str(tmp_path / "m.csv")), parse_kind({"name": "choice"}))
