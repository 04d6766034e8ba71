"""Ours beside the paper's: its numbers as data, which of its rows are shown, and what keeps the two apart."""

import hashlib
import json

import pytest

from restrain_openrlhf.config.command_line import find_config, preset_names
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.data.benchmarks import BENCHMARKS
from restrain_openrlhf.data.sources import TRAINING_SETS
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation import table as tables
from restrain_openrlhf.evaluation.job import PROTOCOLS
from restrain_openrlhf.evaluation.result import Result, Scores, load_results
from restrain_openrlhf.evaluation.table import (
    FILE,
    TEST_TIME,
    as_markdown,
    base_of,
    every_cell,
    lines_of,
    models,
)
from restrain_openrlhf.method import METHODS
from tests.evaluation.conftest import provenance

# Of the file as every cell of it was compared with the paper's LaTeX source.
COMPARED = "48554ceca7360df750cdb4981c36676aae777fe09864fe14a889c496cb50ee5b"
QWEN, OCTOTHINKER, LLAMA = models()


def test_the_file_is_the_one_that_was_compared():
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() == COMPARED


def test_all_names_are_known():
    cells = every_cell()
    assert {cell.benchmark for cell in cells} - {"mean"} <= BENCHMARKS.keys()
    assert {cell.method for cell in cells} - {"base"} <= METHODS.keys()
    assert {cell.training for cell in cells} - {None, TEST_TIME} <= TRAINING_SETS.keys()
    assert {cell.protocol for cell in cells} <= PROTOCOLS.keys()
    assert {f"ablations/{cell.ablation}" for cell in cells if cell.ablation} <= set(preset_names())
    assert {cell.method for cell in cells if cell.training is None} == {"base"}


@pytest.mark.parametrize(
    ("table", "model", "row", "benchmark", "value"),
    [
        (1, QWEN, "RESTRAIN (Ours)", "mmlu_stem", 80.9),
        (3, LLAMA, "TTRL", "amc83", 32.3),
        (7, QWEN, "σ = ∞ (evenly distributed)", "aime25", 6.9),
    ],
)
def test_cells_read_by_eye_from_the_papers_pages(table, model, row, benchmark, value):
    cells = {(cell.table, cell.model, cell.row, cell.benchmark, cell.metric): cell.value for cell in every_cell()}
    assert cells[table, model, row, benchmark, "pass@1"] == value


def test_rows_that_agree_are_one_line_and_others_are_two():
    lines = {(line.row, line.tables) for line in lines_of(OCTOTHINKER, BENCHMARKS)}
    assert ("RESTRAIN", (1,)) in lines
    assert ("RESTRAIN", (5,)) in lines
    assert ("GRPO", (1, 5)) in lines
    (ours, other, gmaes) = [line for line in lines_of(QWEN, BENCHMARKS) if line.row.startswith("RESTRAIN")]
    assert (other.training, other.tables) == ("synthetic-s1k", (2, 6))
    assert ours.tables == (1, 4, 5, 7, 8, 9)
    assert len(ours.values) == 9
    assert (gmaes.origin, gmaes.values["math500"]) == ("GMAE, Table 1", 71.0)
    alone, *_ = [line for line in lines_of(QWEN, ["aime24"]) if line.row.startswith("RESTRAIN")]
    assert (alone.tables, alone.values) == ((5,), {"aime24": 20.3})


def result(name, title, value, majority=None, problems=3, **made):
    scores = Scores(
        pass_at_1=value,
        low=value - 0.05,
        high=value + 0.05,
        pass_at_k={1: value},
        maj_at_n=value if majority is None else majority,
        missing_share=0.0,
        mean_tokens=10.0,
        truncated_share=0.0,
    )
    how = provenance(problems, benchmark=name, title=title, **{"model": "m", **made})
    return Result(provenance=how, scores=scores, extractor_version="1", grader_version="1")


def write_run(folder, *results):
    for each in results:
        path = folder / each.provenance.benchmark
        path.mkdir(parents=True)
        (path / "problems.jsonl").write_text("")
        (path / "result.json").write_text(each.model_dump_json())
    return folder


def measured(name, value, model=QWEN, **changes):
    """A result of the whole benchmark with 16 responses."""
    made = result(name, BENCHMARKS[name].title, value, model=str(model))
    how = made.provenance.model_copy(update={"problems": BENCHMARKS[name].sizes[-1], "n": 16, **changes})
    return made.model_copy(update={"provenance": how})


def trained(folder, preset):
    """The folder of a run of a preset, with its model: what `restrain train` leaves."""
    config = load_run_config(find_config(preset))
    (folder / "model").mkdir(parents=True)
    run = {**config.written(), "openrlhf": dict(config.openrlhf)}
    (folder / "run.json").write_text(json.dumps(run, default=str))
    return folder / "model"


def build_table(runs, **options):
    return tables.build_table({name: load_results(folder) for name, folder in runs}, **options)


def notes(*runs):
    """What differs from the paper, without the lines on how each run, and each other paper's, was measured."""
    left_out = ", protocol ", "arXiv"
    return tuple(note for note in build_table(runs).notes if not any(words in note for words in left_out))


def test_a_runs_folder_says_what_its_models_were_trained_from(tmp_path):
    model = trained(tmp_path / "run", "dapo14k/qwen3-4b-base/restrain")
    assert base_of(str(model)) == QWEN
    assert base_of(str(model.parent / "checkpoints" / "global_step2_hf")) == QWEN
    trained(tmp_path / "adapted" / "train", "test_time/llama3.1-8b-instruct/amc23/ttrl")
    assert base_of(str(tmp_path / "adapted" / "train" / "checkpoints" / "global_step2_hf")) == LLAMA
    for other in (QWEN, str(tmp_path / "elsewhere")):
        assert base_of(other) == other


def test_a_users_word_counts_more_than_the_runs_folder(tmp_path):
    model = trained(tmp_path / "run", "dapo14k/qwen3-4b-base/ttrl")
    runs = [("mine", write_run(tmp_path / "e", measured("math500", 0.7, model)))]
    assert "TTRL, at test time" in [name for name, *_ in build_table(runs, base=LLAMA).rows]
    (tmp_path / "run" / "run.json").write_text("{")
    assert len(build_table(runs, base=QWEN).notes) == 2, "how ours was measured, and how GMAE's"
    with pytest.raises(DataError, match=r"run.json: is not valid JSON"):
        build_table(runs)


def test_a_base_model_as_the_paper_measured_it_needs_no_note(tmp_path):
    assert notes(("base", write_run(tmp_path / "e", measured("math500", 0.5), measured("mmlu_stem", 0.5)))) == ()


def test_test_time_is_shown_for_the_83_problems(tmp_path):
    model = trained(tmp_path / "run", "test_time/llama3.1-8b-instruct/amc23/ttrl")
    greedy = {"protocol": "greedy", "n": 1}
    found = notes(
        ("t", write_run(tmp_path / "e", *(measured(name, 0.3, model, **greedy) for name in ("amc23", "amc83"))))
    )
    assert found == (
        f"t, AMC23: the paper has no amc23 of {LLAMA}",
        "t, AMC (83): printed as AMC23; taken as the 83 problems of the TTRL line",
    )


def test_what_keeps_two_numbers_apart_is_said(tmp_path):
    run = write_run(tmp_path / "e", measured("olympiadbench", 0.1, protocol="greedy", n=1, problems=29))
    assert notes(("base", run)) == (
        "base, OlympiadBench: ours by protocol greedy with 1 responses, the paper's by paper with 16",
        "base, OlympiadBench: ours of 29 problems, the paper's taken as of 675",
    )


@pytest.mark.parametrize(
    ("model", "benchmark", "note"),
    [
        ("who/else", "math500", "the paper has no numbers of who/else; its models are Qwen/Qwen3-4B-Base, "),
        (QWEN, "amc83", f"the paper has no amc83 of {QWEN}"),
    ],
)
def test_what_the_paper_lacks_is_said_and_kept(tmp_path, model, benchmark, note):
    made = build_table([("r", write_run(tmp_path / "e", measured(benchmark, 0.5, model)))])
    assert made.rows[0][2].startswith("50.0 [")
    assert made.notes[1].startswith(f"r, {BENCHMARKS[benchmark].title}: {note}")


def test_the_table_has_the_papers_rows_of_the_model_without_its_ablations(tmp_path):
    model = trained(tmp_path / "run", "ablations/kappa-8")
    runs = [("mine", write_run(tmp_path / "e", measured("math500", 0.7, model), measured("aime24", 0.2, model)))]
    made = build_table(runs)
    rows = {(name, origin): [cell.split()[0] for cell in cells] for name, origin, *cells in made.rows}
    assert rows["mine", "ours"] == ["20.0", "70.0", "45.0"]
    assert rows["RESTRAIN, on dapo14k", "paper, Tables 1, 4, 5, 7, 8 and 9"] == ["20.3", "83.0", "51.6"]
    assert ("RESTRAIN, on synthetic-s1k", "paper, Tables 2 and 6") in rows
    assert not any("κ" in name or "σ" in name for name, _ in rows)
    assert rows["TTRL, on dapo14k", "paper, Tables 1 and 5"][1] == "76.3"
    assert rows["TTRL, on dapo14k", "GMAE, Table 1"][:2] == ["8.8", "74.6"]
    assert any(note.startswith("GMAE: arXiv 2609.36750") for note in made.notes)
    assert not any(note.startswith("SCRL") for note in made.notes), "it has no row of this model"


def test_what_other_papers_took_over_from_the_paper_is_said_and_true():
    """SCRL's averages are of two benchmarks, and its rows of RESTRAIN, TTRL and ETMR the cells of Table 3."""
    llama = [cell for cell in every_cell() if cell.model == LLAMA and cell.metric == "pass@1"]
    cells = {(cell.source, cell.method, cell.benchmark): cell.value for cell in llama}
    for method in ("restrain", "ttrl", "ettrl"):
        theirs, both = cells["SCRL", method, "mean"], [cells["paper", method, name] for name in ("aime24", "amc83")]
        assert sum(both) / 2 == pytest.approx(theirs, abs=0.051)
        assert [cells.get(("SCRL", method, name)) for name in ("aime24", "amc83")] in (both, [None, None])


def test_rows_of_two_models_are_told_apart(tmp_path):
    greedy = {"protocol": "greedy", "n": 1}
    llama = trained(tmp_path / "run", "test_time/llama3.1-8b-instruct/amc23/ttrl")
    runs = [
        ("q", write_run(tmp_path / "q", measured("math500", 0.5))),
        ("l", write_run(tmp_path / "l", measured("math500", 0.5, llama, **greedy))),
    ]
    names = [name for name, *_ in build_table(runs).rows]
    assert names[:2] == ["q", "l"]
    assert "Llama-3.1-8B-Instruct: RESTRAIN, at test time" in names
    assert "Qwen3-4B-Base: RESTRAIN, on dapo14k" in names


def test_the_table_as_text(tmp_path):
    """Of two runs of models that the paper lacks, of which the second lacks a benchmark; golden text throughout."""
    write_run(tmp_path / "a", result("aime24", "AIME24", 0.2), result("amc23", "AMC23", 0.5))
    write_run(tmp_path / "b", result("aime24", "AIME24", 0.25))
    table = build_table([("base", tmp_path / "a"), ("R & D", tmp_path / "b")])
    lacks = f"the paper has no numbers of m; its models are {', '.join(models())}"
    assert as_markdown(table) == (
        "| run |  | AIME24 | AMC23 | mean |\n"
        "| --- | --- | ---: | ---: | ---: |\n"
        "| base | ours | 20.0 [15.0, 25.0] | 50.0 [45.0, 55.0] | 35.0 |\n"
        "| R & D | ours | 25.0 [20.0, 30.0] | – | – |\n"
        "\n"
        "- pass@1 in per cent [95 % interval]\n"
        "- base: m, protocol paper (n 4, T 0.6, top-p 0.95, up to 8 tokens), template plain\n"
        "- R & D: m, protocol paper (n 4, T 0.6, top-p 0.95, up to 8 tokens), template plain\n"
        f"- base, AIME24, AMC23: {lacks}\n"
        f"- R & D, AIME24: {lacks}\n"
    )
