"""Rows come through the hub's own loader or from local files, unchanged; what cannot be had is told with its remedy."""

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


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"{", "line 1: not valid JSON"),
        ("a.csv", b"problem\n\xff\n", "not UTF-8 text"),
        ("a.csv", b'problem\n"x\n', "line 2: is not valid CSV \\(unexpected end of data"),
        ("a.csv", b"problem;answer\nx;y;1\n", r"row 1: has a different number .* contain semicolons in quotes"),
        ("a.jsonl", '{"problem": "x"}'.encode("utf-16"), "is not UTF-8 text"),
        ("a.csv", "problem\nx\n".encode("utf-32"), "is not UTF-8 text"),
        ("a.txt", b'{"problem": "x"}\n', "line 1: looks like JSON"),
        ("a.parquet", b"not parquet", "is not a complete Parquet file"),
        ("a.xlsx", b"", r"is not a \.jsonl, \.json, \.csv, \.tsv, \.txt or \.parquet file"),
        ("a.jsonl.gz", b"", r"is not a \.jsonl"),
        ("a.json", b'{\n"data": [{"problem": "x"}]}', "line 1: not valid JSON"),
        ("a.json", b'\n [{"problem": "x"},\n', r"a\.json: not valid JSON"),
        ("a.json", b'[{"problem": "x"}, "y"]', "a.json, row 2: is no object, but str"),
        ("a.json", b'[{"problem": "\\ud83d"}]', "a.json: not valid JSON"),
        ("a.csv", b"problem,answer\nx,1\nf(x, y),1\n", "row 2: has a different number of cells than the header"),
        ("a.csv", b"problem,answer\nx\n", "row 1: has a different number of cells than the header"),
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
