"""The paper's numbers as data: what was compared with its source, its own sums, and how its rows are joined."""

import hashlib
from collections import Counter

import pytest

from restrain_openrlhf.config.command_line import preset_names
from restrain_openrlhf.data.benchmarks import BENCHMARKS
from restrain_openrlhf.data.sources import TRAINING_SETS
from restrain_openrlhf.evaluation.job import PROTOCOLS
from restrain_openrlhf.evaluation.published import (
    BASE,
    FILE,
    MEAN,
    TEST_TIME,
    accuracies,
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
# The averages and differences that the paper's own cells do not give, as printed.
WRONG_MEANS = {
    (1, QWEN, "SRT (offline majority label)"): 43.1,
    (1, OCTOTHINKER, "OctoThinker Hybrid-8B-Base"): 19.2,
    (5, OCTOTHINKER, "Oct.Hybrid-8B-Base"): 15.0,
}
WRONG_DIFFERENCES = {(1, OCTOTHINKER, "math500"): 5.1}


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


# By eye, from the paper's pages: at least one of every table, in the last column and in the middle.
@pytest.mark.parametrize(
    ("table", "model", "row", "benchmark", "value"),
    [
        (1, QWEN, "RESTRAIN (Ours)", "mmlu_stem", 80.9),
        (1, OCTOTHINKER, "GRPO", "mean", 39.6),
        (2, QWEN, "SRT (easy prompt)", "minerva_math", 34.8),
        (3, LLAMA, "TTRL", "aime24", 10.0),
        (3, LLAMA, "TTRL", "amc83", 32.3),
        (3, LLAMA, "TTRL", "math500", 63.7),
        (3, LLAMA, "RESTRAIN (Ours)", "amc83", 40.0),
        (4, QWEN, "(-) Negative Rollout Penalization", "gpqa_diamond", 33.0),
        (5, OCTOTHINKER, "RESTRAIN", "amc23", 33.6),
        (5, QWEN, "GRPO", "s1k", 12.2),
        (6, QWEN, "RESTRAIN", "mean", 42.5),
        (7, QWEN, "σ = 0.25", "mmlu_stem", 60.52),
        (7, QWEN, "σ = ∞ (evenly distributed)", "aime25", 6.9),
        (8, QWEN, "δ = 5", "mean", 37.9),
        (9, QWEN, "κ = 8", "olympiadbench", 34.1),
    ],
)
def test_single_cells(table, model, row, benchmark, value):
    assert found(table, model, row, benchmark) == value


def test_the_differences_of_the_tables_are_there_with_their_sign():
    assert found(3, LLAMA, "Δ(RESTRAIN - ETMR)", "aime24", "difference") == -0.2
    assert found(1, QWEN, "Δ(RESTRAIN - TTRL)", "aime25", "relative_gain") == 115.7


def rows():
    cells = {}
    for cell in every_cell():
        cells.setdefault((cell.table, cell.model, cell.row, cell.metric), {})[cell.benchmark] = cell.value
    return cells


def test_averages_are_those_of_their_cells_but_for_three():
    """Both are rounded: 0.05 of the average and as much of its cells."""
    wrong = {}
    for (table, model, row, metric), values in rows().items():
        own = [value for benchmark, value in values.items() if benchmark != MEAN]
        if metric == "pass@1" and abs(values[MEAN] - sum(own) / len(own)) > 0.1 + 1e-9:
            wrong[table, model, row] = values[MEAN]
    assert wrong == WRONG_MEANS


def test_differences_are_those_of_their_rows_but_for_one():
    cells, wrong = rows(), {}
    for (table, model, row, metric), values in cells.items():
        if metric != "difference":
            continue
        ours = next(
            found for key, found in cells.items() if key[:2] == (table, model) and key[2].startswith("RESTRAIN")
        )
        theirs = cells[table, model, row.removeprefix("Δ(RESTRAIN - ").removesuffix(")"), "pass@1"]
        for benchmark, value in values.items():
            if abs(ours[benchmark] - theirs[benchmark] - value) > 0.01:
                wrong[table, model, benchmark] = value
    assert wrong == WRONG_DIFFERENCES


def test_of_the_test_time_rows_only_some_can_be_one_greedy_pass():
    """Greedy, a share is a whole number of problems: 40.0 % is 16 of 40 problems, and none of 83."""
    odd = {(cell.row, cell.benchmark) for cell in accuracies() if cell.table == 3 and not cell.is_a_share}
    assert odd == {
        ("TTRL", "amc83"), ("TTRL", "math500"), ("ETMR", "aime24"), ("ETMR", "amc83"), ("ETMR", "math500"),
        ("RESTRAIN (Ours)", "amc83"),
    }  # fmt: skip


def test_some_numbers_are_no_share_of_16_responses_to_each_problem():
    """By hand: 69.3 % of 40 × 16 is 443.5 responses; 443 are 69.2 and 444 are 69.4."""
    odd = {(cell.benchmark, cell.value) for cell in accuracies() if cell.protocol == "paper" and not cell.is_a_share}
    amc, aime24, aime25 = ({value for name, value in odd if name == key} for key in ("amc23", "aime24", "aime25"))
    assert (amc, aime24, aime25) == ({69.3, 52.6, 51.8}, {12.0, 20.3, 3.9}, {12.0, 18.9})
    assert len(odd) == 8


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
