"""Rows come through the hub's own loader or from local files, unchanged; what cannot be had is told with its remedy."""

import json

import pytest

from restrain_openrlhf.data.sources import HubSet, load_rows
from restrain_openrlhf.errors import DataError
from tests.data.hub_layout import parquet_folder

datasets = pytest.importorskip("datasets", reason="needs datasets: pip install restrain-openrlhf[data]")

DAPO = HubSet("open-r1/DAPO-Math-17k-Processed", config="en")
# The columns of the data set's card.
DAPO_ROW = {
    "prompt": "Find $x$ if\n$2x = 4$.",
    "solution": "2",
    "data_source": "math_dapo",
    "source_prompt": [{"content": "Solve ... Find $x$ if\n$2x = 4$.", "role": "user"}],
    "ability": "MATH",
    "reward_model": {"ground_truth": "2", "style": "rule-lighteval/MATH_v2"},
    "extra_info": {"index": "9a9b6eb4"},
}


def test_a_folder_laid_out_as_on_the_hub_goes_through_the_hubs_loader(tmp_path):
    folder = parquet_folder(tmp_path / "dapo", [DAPO_ROW], "train", "en")
    assert load_rows(DAPO, str(folder)) == [DAPO_ROW]


def test_the_hub_is_asked_for_exactly_this_set(monkeypatch):
    asked = []

    def load_dataset(name, config, split, cache_dir):
        asked.append((name, config, split))
        return [DAPO_ROW]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert load_rows(DAPO, "hub") == [DAPO_ROW]
    assert asked == [("open-r1/DAPO-Math-17k-Processed", "en", "train")]


def test_a_gated_set_says_how_to_be_let_in(monkeypatch):
    def refuse(*args, **kwargs):
        raise datasets.exceptions.DatasetNotFoundError("Dataset 'a/b' is a gated dataset on the Hub.")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(DataError, match=r"gated dataset on the Hub.*accept the terms.*local copy"):
        load_rows(HubSet("a/b", gate="accept the terms."), "hub")


def test_an_unreachable_hub_is_one_error(monkeypatch):
    def refuse(*args, **kwargs):
        raise ConnectionError("Couldn't reach 'a/b' on the Hub")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(DataError, match=r"a/b, split train: could not be downloaded from the hub .*local copy"):
        load_rows(HubSet("a/b"), "hub")


def test_local_files_keep_every_answer_as_it_is_written(tmp_path):
    rows = [{"problem": "a, b", "answer": "007"}, {"problem": 'say "x"\nthen y', "answer": "1.0"}]
    jsonl = tmp_path / "a.jsonl"
    jsonl.write_text("".join(json.dumps(row) + "\n" for row in rows))
    csv = tmp_path / "a.csv"
    csv.write_text('problem,answer\n"a, b",007\n"say ""x""\nthen y",1.0\n')
    parquet = tmp_path / "a.parquet"
    datasets.Dataset.from_list(rows).to_parquet(str(parquet))
    (tmp_path / "array.json").write_text(json.dumps(rows, indent=2))
    datasets.Dataset.from_list(rows).to_json(str(tmp_path / "lines.json"))
    for path in (jsonl, csv, parquet, tmp_path / "array.json", tmp_path / "lines.json"):
        assert load_rows(None, str(path)) == rows, path.name


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"{", "line 1: not valid JSON"),
        ("a.csv", b"problem\n\xff\n", "not UTF-8 text"),
        ("a.csv", b'problem\n"x\n', "line 1: is not valid CSV \\(unexpected end of data"),
        ("a.csv", b"problem;answer\nx, y;1\n", r"cells are separated by ';', not by commas .*'problem;answer'"),
        ("a.csv", b"problem\tanswer\nx\t1\n", "cells are separated by a tab, not by commas"),
        ("a.parquet", b"not parquet", "is not a complete Parquet file"),
        ("a.xlsx", b"", r"is not a \.jsonl, \.json, \.csv or \.parquet file"),
        ("a.json", b'\n [{"problem": "x"},\n', r"a\.json: not valid JSON .* or write a JSON object per line"),
        ("a.json", b'[{"problem": "x"}, "y"]', "a.json, row 2: is no object, but str"),
        ("a.json", b'[{"problem": "\\ud83d"}]', "a.json: has half of a character"),
        ("a.json", b'{"data": [\n{"problem": "x"}]}', "a.json, line 1: not valid JSON"),
        ("a.csv", b"problem,answer\nx,1\nf(x, y),1\n", "row 2: has a different number of cells than the header"),
        ("a.csv", b"problem,answer\nx\n", "row 1: has a different number of cells than the header"),
        ("a.jsonl.gz", b"", r"is not a \.jsonl, \.json, \.csv or \.parquet file"),
    ],
)
def test_damaged_files_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_rows(None, str(tmp_path / name))


def test_a_long_cell_is_read(tmp_path):
    """The csv module's own limit is 131,072 characters."""
    text = "x" * 200_000
    (tmp_path / "a.csv").write_text(f"problem\n{text}\n")
    assert load_rows(None, str(tmp_path / "a.csv")) == [{"problem": text}]


def test_a_missing_file_and_a_set_without_a_place_are_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        load_rows(None, str(tmp_path / "absent.jsonl"))
    with pytest.raises(DataError, match="--source PATH"):
        load_rows(None, "hub")


def test_two_folders_of_one_name_are_not_mixed_up(tmp_path):
    """With its cache, the loader gives the first folder's rows for the second."""
    for place in ("one", "two"):
        folder = parquet_folder(tmp_path / place / "set", [{"problem": place}], "train", "en")
        assert load_rows(HubSet("a/set", config="en"), str(folder)) == [{"problem": place}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", '{"problem": "x, y?", "answer": "1"}\r\n'),
        ("a.csv", 'problem,answer\r\n"x, y?",1\r\n'),
        ("A.JSONL", '{"problem": "x, y?", "answer": "1"}\r\n'),
        ("a.json", '[\r\n  {"problem": "x, y?", "answer": "1"}\r\n]\r\n'),
    ],
)
def test_files_as_windows_writes_them_are_read(tmp_path, name, text):
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert load_rows(None, str(tmp_path / name)) == [{"problem": "x, y?", "answer": "1"}]
