"""Where rows of an artifact are: found as a plain reading finds them, and never in another file."""

import json

import pytest

from restrain_openrlhf.errors import DataError, ReferencePassError
from restrain_openrlhf.reference import load_reference
from tests.reference import by_hand

ROWS = 300


def lines(count=ROWS, majority=lambda i: 1 + i % 16):
    return [by_hand.line(f"p{i}", ["1"] * majority(i) + ["2"] * (16 - majority(i)), id=i) for i in range(count)]


@pytest.fixture
def path(tmp_path):
    return by_hand.write(tmp_path / "ref.jsonl", [*lines()[:7], "\r\n", "\n", *lines()[7:]], prompt_count=ROWS)


def test_every_row_is_found_and_no_other(path):
    reference = load_reference(path)
    plain = {f"p{row['id']}": row for row in map(json.loads, filter(str.strip, path.read_text().splitlines()))}
    for prompt, row in plain.items():
        assert reference.row(prompt).model_dump(mode="json", include=set(row)) == row
        assert reference.by_problem(prompt).id == row["id"]
    assert reference.by_problem("p300") is None
    with pytest.raises(ReferencePassError, match="has no row for the prompt 'p300'"):
        reference.row("p300")
    assert [row.id for row in reference.rows] == list(range(ROWS))


def exchanged():
    """Row 5 begins where row 3 did."""
    rows = lines()
    return [*rows[:3], rows[5], rows[4], rows[3], *rows[6:]]


@pytest.mark.parametrize(
    "written",
    [["other\n"] * 9000, lines(majority=lambda _i: 16)[::-1], exchanged()],
    ids=["rubbish", "rows", "another row in its place"],
)
def test_what_takes_the_artifacts_place_is_not_seen_and_what_is_written_into_it_is_refused(path, written):
    reference = load_reference(path)
    path.rename(path.with_name("old.jsonl"))
    path.write_text("".join(lines(majority=lambda _i: 16)))
    assert reference.row("p3").majority_count == 4
    path.with_name("old.jsonl").write_text("".join(written))
    with pytest.raises(DataError, match="was changed while it was in use"):
        reference.row("p3")
