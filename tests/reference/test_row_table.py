"""Where rows of an artifact are: found as a plain reading finds them, made once, mapped, and never of another file."""

import json
import multiprocessing
import time
from pathlib import Path

import numpy as np
import pytest

from restrain_openrlhf.errors import ReferencePassError
from restrain_openrlhf.reference import artifact, load_reference, row_table
from tests.reference import by_hand

ROWS = 300


def lines(count=ROWS, majority=lambda i: 1 + i % 16):
    return [by_hand.line(f"p{i}", ["1"] * majority(i) + ["2"] * (16 - majority(i)), id=i) for i in range(count)]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of the test's own, which takes small artifacts too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(row_table, "CACHED_FROM", 0)
    return tmp_path / "cache/restrain-openrlhf/references"


@pytest.fixture
def path(tmp_path):
    return by_hand.write(tmp_path / "ref.jsonl", [*lines()[:7], "\r\n", "\n", *lines()[7:]], prompt_count=ROWS)


def rows_by_json(path):
    return {f"p{row['id']}": row for row in map(json.loads, filter(str.strip, path.read_text().splitlines()))}


@pytest.mark.parametrize("digits", [16, 1])
def test_every_row_is_found_and_no_other_also_where_keys_are_alike(cache, path, monkeypatch, digits):
    """With one hex digit of each hash there are 16 keys for 300 rows."""
    monkeypatch.setattr(row_table, "HASH_DIGITS", digits)
    reference, plain = load_reference(path), rows_by_json(path)
    for prompt, row in plain.items():
        assert reference.row(prompt).model_dump(mode="json", include=set(row)) == row
        assert reference.by_problem(prompt).id == row["id"]
    assert reference.by_prompt("p300") is reference.by_problem("p300") is None
    assert [row.id for row in reference.rows] == list(range(ROWS))


def test_shares_are_the_rows_own_and_nan_where_there_is_none(cache, path):
    found = load_reference(path).shares(["p3", "absent", "p299"])
    assert found.tolist()[::2] == [4 / 16, 12 / 16]
    assert np.isnan(found[1])


def test_the_second_reader_maps_what_the_first_made_and_reads_no_row(cache, path, monkeypatch):
    load_reference(path)
    (entry,) = cache.glob("*.npy")
    monkeypatch.setattr(artifact, "parse", lambda *_: pytest.fail("a row was read"))
    reference = load_reference(path)
    assert str(entry) in Path("/proc/self/maps").read_text()
    assert reference.row("p17").id == 17


def test_another_content_and_another_number_of_rollouts_have_tables_of_their_own(cache, path):
    load_reference(path)
    path.write_text("".join(lines(majority=lambda _i: 16)))
    assert load_reference(path).row("p3").majority_count == 16
    by_hand.write(path, lines(), n=15)
    with pytest.raises(ReferencePassError, match="the provenance says 15"):
        load_reference(path)
    assert len(list(cache.glob("*.npy"))) == 2


def load_and_count(path, folder, cache, together):
    """In a process of its own: how many rows it read, slowly, to load the artifact."""
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    row_table.CACHED_FROM, parse, read = 0, artifact.parse, []
    artifact.parse = lambda *words: read.append(time.sleep(0.002)) or parse(*words)
    together.wait()
    assert load_reference(path).row("p5").id == 5
    (Path(folder) / multiprocessing.current_process().name).write_text(str(len(read)))
    monkeypatch.undo()


def test_of_processes_that_start_together_one_reads_the_rows(path, tmp_path):
    (tmp_path / "counts").mkdir()
    made = multiprocessing.get_context("spawn")
    words = (path, str(tmp_path / "counts"), str(tmp_path / "cache"), made.Barrier(3))
    processes = [made.Process(target=load_and_count, args=words, name=str(place)) for place in range(3)]
    for each in processes:
        each.start()
    for each in processes:
        each.join()
        assert each.exitcode == 0
    assert sorted(int(each.read_text()) for each in (tmp_path / "counts").iterdir()) == [0, 0, ROWS]


def test_without_a_cache_that_can_be_written_each_reads_the_rows(path, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(row_table, "CACHED_FROM", 0)
    assert load_reference(path).row("p5").id == 5
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "ref.jsonl", "ref.jsonl.provenance.json"]


def test_a_table_that_a_kill_cut_short_is_made_again(cache, path):
    load_reference(path)
    (entry,) = cache.glob("*.npy")
    entry.write_bytes(entry.read_bytes()[:-100])
    assert load_reference(path).row("p299").id == 299
    assert load_reference(path).row("p299").id == 299


def test_what_takes_the_artifacts_place_is_not_seen_and_what_is_written_into_it_is_refused(cache, path):
    reference = load_reference(path)
    path.rename(path.with_name("old.jsonl"))
    path.write_text("".join(lines(majority=lambda _i: 16)))
    assert reference.row("p3").majority_count == 4
    path.with_name("old.jsonl").write_text("other\n" * 9000)
    with pytest.raises(ReferencePassError, match="was changed while it was in use"):
        reference.row("p3")
