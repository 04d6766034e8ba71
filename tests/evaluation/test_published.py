"""The paper's numbers as data: what was compared with its source, its own sums, and how its rows are joined."""

import hashlib
from collections import Counter

import pytest

from restrain_openrlhf.config.command_line import preset_names
from restrain_openrlhf.data.benchmarks import BENCHMARKS
from restrain_openrlhf.data.sources import TRAINING_SETS
from restrain_openrlhf.evaluation.job import PROTOCOLS
from restrain_openrlhf.evaluation.table import (
    BASE,
    FILE,
    MEAN,
    TEST_TIME,
    every_cell,
    lines_of,
    models,
    row_words,
    tables_words,
)
from restrain_openrlhf.method import METHODS

# Of the file as every cell of it was compared with the paper's LaTeX source.
COMPARED = "48554ceca7360df750cdb4981c36676aae777fe09864fe14a889c496cb50ee5b"
QWEN, OCTOTHINKER, LLAMA = models()


def test_the_file_is_the_one_that_was_compared():
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() == COMPARED


def test_every_table_is_whole():
    assert Counter(cell.table for cell in every_cell()) == {
        1: 15 * 7, 2: 8 * 7, 3: 4 * 4, 4: 4 * 7, 5: 10 * 10, 6: 6 * 10, 7: 8 * 7, 8: 5 * 7, 9: 4 * 7,
    }  # fmt: skip


def test_all_names_are_known():
    cells = every_cell()
    assert {cell.benchmark for cell in cells} - {MEAN} <= BENCHMARKS.keys()
    assert {cell.method for cell in cells} - {BASE} <= METHODS.keys()
    assert {cell.training for cell in cells} - {None, TEST_TIME} <= TRAINING_SETS.keys()
    assert {cell.protocol for cell in cells} <= PROTOCOLS.keys()
    assert {f"ablations/{cell.ablation}" for cell in cells if cell.ablation} <= set(preset_names())
    assert {cell.method for cell in cells if cell.training is None} == {BASE}


def found(table, model, row, benchmark, metric="pass@1"):
    (cell,) = [
        cell
        for cell in every_cell()
        if (cell.table, cell.model, cell.row, cell.benchmark, cell.metric) == (table, model, row, benchmark, metric)
    ]
    return cell.value


@pytest.mark.parametrize(
    ("table", "model", "row", "benchmark", "value"),
    [
        (1, QWEN, "RESTRAIN (Ours)", "mmlu_stem", 80.9),
        (3, LLAMA, "TTRL", "amc83", 32.3),
        (7, QWEN, "σ = ∞ (evenly distributed)", "aime25", 6.9),
    ],
)
def test_cells_read_by_eye_from_the_papers_pages(table, model, row, benchmark, value):
    assert found(table, model, row, benchmark) == value


def test_rows_that_agree_are_one_line_and_others_are_two():
    lines = {(line.row, line.tables) for line in lines_of(OCTOTHINKER, BENCHMARKS)}
    assert ("RESTRAIN", (1,)) in lines
    assert ("RESTRAIN", (5,)) in lines
    assert ("GRPO", (1, 5)) in lines
    (ours, other) = [line for line in lines_of(QWEN, BENCHMARKS) if line.row.startswith("RESTRAIN")]
    assert (other.training, other.tables) == ("synthetic-s1k", (2, 6))
    assert ours.tables == (1, 4, 5, 7, 8, 9)
    assert len(ours.values) == 9
    alone, _ = [line for line in lines_of(QWEN, ["aime24"]) if line.row.startswith("RESTRAIN")]
    assert (alone.tables, alone.values) == ((5,), {"aime24": 20.3})


def test_ablations_rows_come_where_they_are_asked_for():
    assert [line.row for line in lines_of(QWEN, BENCHMARKS, with_ablations=True)][-1] == "κ = 8"
    assert not any("κ = 8" in line.row for line in lines_of(QWEN, BENCHMARKS))
    assert lines_of("no-one/nothing", BENCHMARKS) == []


def test_words():
    assert tables_words((3,)) == "Table 3"
    assert tables_words((1, 4, 5)) == "Tables 1, 4 and 5"
    assert row_words("RESTRAIN (Ours)", "test-time") == "RESTRAIN, at test time"
    assert row_words("TTRL", "dapo14k") == "TTRL, on dapo14k"
    assert row_words("Qwen3-4B-Base", None) == "Qwen3-4B-Base"
