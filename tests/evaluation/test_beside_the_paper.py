"""Ours beside the paper's: which of its rows are shown, and what is said to keep the two apart."""

import json

import pytest

from restrain_openrlhf.config.command_line import find_config
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.data.benchmarks import BENCHMARKS
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation import table as tables
from restrain_openrlhf.evaluation.result import load_results
from restrain_openrlhf.evaluation.table import base_of, text_of_table
from tests.evaluation.test_table import result, write_run

QWEN = "Qwen/Qwen3-4B-Base"
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


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
    return build_table(runs).notes


def test_a_runs_folder_says_what_its_models_were_trained_from(tmp_path):
    model = trained(tmp_path / "run", "dapo14k/qwen3-4b-base/restrain")
    assert base_of(str(model)) == QWEN
    assert base_of(str(model.parent / "checkpoints" / "global_step2_hf")) == QWEN
    trained(tmp_path / "adapted" / "train", "test_time/llama3.1-8b-instruct/amc23/ttrl")
    assert base_of(str(tmp_path / "adapted" / "train" / "checkpoints" / "global_step2_hf")) == LLAMA


def test_other_models_are_what_they_are_called(tmp_path):
    assert base_of(QWEN) == QWEN
    assert base_of(str(tmp_path / "elsewhere")) == str(tmp_path / "elsewhere")


def test_a_users_word_counts_more_than_the_runs_folder(tmp_path):
    model = trained(tmp_path / "run", "dapo14k/qwen3-4b-base/ttrl")
    runs = [("mine", write_run(tmp_path / "e", measured("math500", 0.7, model)))]
    assert "TTRL, at test time" in [line.run for line in build_table(runs, base=LLAMA).lines]
    (tmp_path / "run" / "run.json").write_text("{")
    assert build_table(runs, base=QWEN).notes == ()
    with pytest.raises(DataError, match=r"run.json: is not valid JSON"):
        build_table(runs)


def test_a_base_model_as_the_paper_measured_it_needs_no_note(tmp_path):
    assert notes(("base", write_run(tmp_path / "e", measured("math500", 0.5), measured("mmlu_stem", 0.5)))) == ()


def test_two_numbers_of_the_paper_are_two_rows(tmp_path):
    model = trained(tmp_path / "run", "dapo14k/octothinker-8b-hybrid-base/restrain")
    made = build_table([("o", write_run(tmp_path / "e", measured("math500", 0.62, model)))])
    rows = {line.origin: line.cells[0].value for line in made.lines if line.run == "RESTRAIN, on dapo14k"}
    assert rows == {"paper, Table 1": 62.1, "paper, Table 5": 61.6}


def test_test_time_is_shown_for_the_83_problems(tmp_path):
    model = trained(tmp_path / "run", "test_time/llama3.1-8b-instruct/amc23/ttrl")
    greedy = {"protocol": "greedy", "n": 1}
    found = notes(
        ("t", write_run(tmp_path / "e", *(measured(name, 0.3, model, **greedy) for name in ("amc23", "amc83"))))
    )
    assert found == (
        f"t, AMC23: the paper has no amc23 of {LLAMA}",
        "t, AMC (83): printed as AMC23; taken as the 83 problems of the TTRL line",
        "t, AMC (83): the paper's are adapted to this benchmark itself",
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
        ("./here", "math500", "the paper has no numbers of ./here; its models are"),
    ],
)
def test_what_the_paper_lacks_is_said_and_kept(tmp_path, model, benchmark, note):
    made = build_table([("r", write_run(tmp_path / "e", measured(benchmark, 0.5, model)))])
    assert made.lines[0].cells[0].value == 50.0
    assert made.notes[0].startswith(f"r, {BENCHMARKS[benchmark].title}: {note}")


def test_a_model_that_the_paper_lacks_has_one_note_for_all_its_benchmarks(tmp_path):
    results = (measured(name, 0.5, "who/else") for name in ("math500", "aime24", "amc83"))
    (note,) = notes(("r", write_run(tmp_path / "e", *results)))
    assert set(note.partition(": ")[0].removeprefix("r, ").split(", ")) == {
        BENCHMARKS[name].title for name in ("math500", "aime24", "amc83")
    }


def test_the_table_has_the_papers_rows_of_the_model_unasked_and_its_ablations_asked(tmp_path):
    model = trained(tmp_path / "run", "ablations/kappa-8")
    runs = [("mine", write_run(tmp_path / "e", measured("math500", 0.7, model), measured("aime24", 0.2, model)))]
    made = build_table(runs)
    rows = {(line.run, line.origin): [cell and cell.value for cell in line.cells] for line in made.lines}
    assert rows["mine", "ours"] == [20.0, 70.0, 45.0]
    assert rows["RESTRAIN, on dapo14k", "paper, Tables 1, 4, 5, 7, 8 and 9"] == [20.3, 83.0, pytest.approx(51.65)]
    assert ("RESTRAIN, on synthetic-s1k", "paper, Tables 2 and 6") in rows
    assert not any("κ" in name or "σ" in name for name, _ in rows)
    assert '"TTRL, on dapo14k","paper, Tables 1 and 5",MATH-500,76.30,,' in text_of_table(made, "csv").splitlines()
    assert json.loads(text_of_table(made, "json"))["lines"][0]["cells"][1]["value"] == 70.0
    asked = text_of_table(build_table(runs, with_ablations=True), "markdown")
    assert "| κ = 8, on dapo14k | paper, Table 9 | – | 67.3 | – |" in asked


def test_rows_of_two_models_are_told_apart(tmp_path):
    greedy = {"protocol": "greedy", "n": 1}
    llama = trained(tmp_path / "run", "test_time/llama3.1-8b-instruct/amc23/ttrl")
    runs = [
        ("q", write_run(tmp_path / "q", measured("math500", 0.5))),
        ("l", write_run(tmp_path / "l", measured("math500", 0.5, llama, **greedy))),
    ]
    names = [line.run for line in build_table(runs).lines]
    assert names[:2] == ["q", "l"]
    assert "Llama-3.1-8B-Instruct: RESTRAIN, at test time" in names
    assert "Qwen3-4B-Base: RESTRAIN, on dapo14k" in names
