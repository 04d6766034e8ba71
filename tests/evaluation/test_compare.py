"""Ours beside the paper's: what a run is, which number of the paper is its counterpart, what is said of the rest."""

import csv
import json

import pytest

from restrain_openrlhf.config.command_line import find_config
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.data.benchmarks import BENCHMARKS
from restrain_openrlhf.errors import ConfigError, RunError
from restrain_openrlhf.evaluation import compare as comparing
from restrain_openrlhf.evaluation import table as tables
from restrain_openrlhf.evaluation.compare import Estimate, overlap, papers_estimate
from restrain_openrlhf.evaluation.published import Subject, accuracies, subject_of
from restrain_openrlhf.evaluation.result import load_results
from restrain_openrlhf.evaluation.table import text_of_comparisons, text_of_table
from tests.evaluation.conftest import provenance
from tests.evaluation.test_table import result, write_run

QWEN = "Qwen/Qwen3-4B-Base"
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def measured(name, value, model=QWEN, **changes):
    """A result of the whole benchmark with 16 responses."""
    made = result(name, BENCHMARKS[name].title, value, model=str(model))
    how = made.provenance.model_copy(update={"problems": BENCHMARKS[name].sizes[-1], "n": 16, **changes})
    return made.model_copy(update={"provenance": how})


def trained(folder, preset, **changes):
    """The folder of a run of a preset, with its model: what `restrain train` leaves."""
    config = load_run_config(find_config(preset))
    (folder / "model").mkdir(parents=True)
    method = {**config.method.model_dump(mode="json"), **changes}
    run = {**config.written(), "method": method, "openrlhf": dict(config.openrlhf)}
    (folder / "run.json").write_text(json.dumps(run, default=str))
    return folder / "model"


def subject(model, given=Subject(), **labels):  # noqa: B008
    return subject_of(provenance(3, model=str(model), labels=labels), given)


def compare(runs):
    return comparing.compare({name: load_results(folder) for name, folder in runs}, Subject())


def build_table(runs):
    return tables.build_table({name: load_results(folder) for name, folder in runs}, Subject())


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("dapo14k/qwen3-4b-base/restrain", Subject(QWEN, "restrain", "dapo14k")),
        ("dapo14k/qwen3-4b-base/grpo_gold", Subject(QWEN, "grpo_gold", "dapo14k")),
        ("s1k/qwen3-4b-base/srt_easy", Subject(QWEN, "srt_easy", "synthetic-s1k")),
        ("one_gpu/80gb/qwen3-4b-base", Subject(QWEN, "restrain", "dapo14k")),
        ("ablations/sigma-inf", Subject(QWEN, "restrain", "dapo14k", "sigma-inf")),
        ("ablations/no_penalty", Subject(QWEN, "restrain", "dapo14k", "no_penalty")),
        ("ablations/kappa-3", Subject(QWEN, "restrain", "dapo14k")),
        ("ablations/sigma-0.5", Subject(QWEN, "restrain", "dapo14k")),
        ("test_time/llama3.1-8b-instruct/amc23/ttrl", Subject(LLAMA, "ttrl", "test-time")),
        (
            "test_time/llama3.1-8b-instruct/math500/ttrl_protocol/restrain",
            Subject(LLAMA, "restrain", "test-time"),
        ),
    ],
)
def test_a_runs_folder_says_what_its_model_is(tmp_path, preset, expected):
    assert subject(trained(tmp_path / "run", preset)) == expected


def test_a_run_with_settings_of_its_own_is_none_of_the_papers(tmp_path):
    model = trained(tmp_path / "run", "dapo14k/qwen3-4b-base/restrain", kappa=4)
    assert subject(model) == Subject(QWEN, "restrain", "dapo14k", own_settings=True)
    (found,) = compare([("mine", write_run(tmp_path / "e", measured("math500", 0.8, model)))])
    assert found.paper is None
    assert found.notes == ("the paper has no restrain with these settings; `run.json` has them",)


def test_a_prepared_training_set_says_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = trained(tmp_path / "run", "dapo14k/qwen3-4b-base/ttrl")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "dapo14k.about.json").write_text(json.dumps({"name": "own"}))
    assert subject(model).training == "own"


def test_hub_ids_labels_and_what_a_user_says():
    assert subject(QWEN) == Subject(QWEN, "base", None)
    assert subject("./somewhere") == Subject(None, None, None)
    labels = {"base": QWEN, "method": "restrain", "data": "dapo14k", "sigma": "0.1"}
    assert subject("./somewhere", **labels) == Subject(QWEN, "restrain", "dapo14k", "sigma-0.1")
    assert subject("./somewhere", method="restrain", sigma="0.5").ablation is None
    given = Subject(QWEN, "ttrl", "synthetic-s1k")
    assert subject("./somewhere", given, method="restrain") == Subject(QWEN, "ttrl", "synthetic-s1k")
    assert subject(QWEN, method="mine") == Subject(QWEN, "mine", None)
    with pytest.raises(ConfigError, match=r"--method 'grop': is no method. Known: base"):
        subject("./somewhere", Subject(method="grop"))


def test_a_run_folder_that_cannot_be_read_is_refused(tmp_path):
    model = trained(tmp_path / "run", "dapo14k/qwen3-4b-base/ttrl")
    (tmp_path / "run" / "run.json").write_text("{}")
    with pytest.raises(RunError, match=r"run.json: cannot be read as a run's .*--base, --method and --data"):
        subject(model)
    assert subject(model, Subject(QWEN, "ttrl", "dapo14k")) == Subject(QWEN, "ttrl", "dapo14k")


def test_the_papers_interval_is_wilsons_of_as_many_trials_as_problems():
    """By hand, for 3 of 30 (10.0 %): centre (0.1 + z²/60) / (1 + z²/30), z = 1.96, so [3.46, 25.62]."""
    (cell,) = [cell for cell in accuracies() if cell.table == 3 and cell.value == 10.0]
    found = papers_estimate(cell)
    assert (found.value, found.problems, found.responses) == (10.0, 30, 1)
    assert (found.low, found.high) == (pytest.approx(3.46, abs=0.01), pytest.approx(25.62, abs=0.01))


def test_overlap_is_of_two_closed_intervals():
    assert overlap(Estimate(1, 0, 2), Estimate(3, 2, 4)) is True
    assert overlap(Estimate(1, 0, 2), Estimate(3, 2.1, 4)) is False
    assert overlap(Estimate(3, 2.1, 4), Estimate(1, 0, 2)) is False
    assert overlap(Estimate(1), Estimate(3, 2, 4)) is None


def test_a_base_model_beside_the_papers(tmp_path):
    six = ("math500", "aime25", "olympiadbench", "minerva_math", "mmlu_stem", "gpqa_diamond")
    runs = [("base", write_run(tmp_path / "e", *(measured(name, 0.5) for name in six)))]
    found = {each.benchmark: each for each in compare(runs)}
    assert set(found) == {*six, "mean"}
    math = found["math500"]
    assert (math.row, math.tables, math.paper.value) == ("Qwen3-4B-Base", (1, 2, 5, 6), 68.0)
    assert (math.difference, math.overlap, math.notes) == (pytest.approx(-18.0), False, ())
    assert found["minerva_math"].overlap is False
    assert (found["mean"].title, found["mean"].paper.value, found["mean"].tables) == ("mean of 6", 38.0, (1, 2))
    assert found["mean"].difference == pytest.approx(12.0)


def test_an_average_that_its_cells_do_not_have_is_said(tmp_path):
    model = trained(tmp_path / "run", "dapo14k/qwen3-4b-base/srt_offline")
    six = ("math500", "aime25", "olympiadbench", "minerva_math", "mmlu_stem", "gpqa_diamond")
    found = compare([("srt", write_run(tmp_path / "e", *(measured(name, 0.4, model) for name in six)))])
    assert (found[-1].paper.value, found[-1].notes) == (43.1, ("the paper's own cells have the mean 42.8",))


def test_two_numbers_of_the_paper_are_two_comparisons(tmp_path):
    model = trained(tmp_path / "run", "dapo14k/octothinker-8b-hybrid-base/restrain")
    first, second = compare([("o", write_run(tmp_path / "e", measured("math500", 0.62, model)))])
    assert (first.paper.value, first.tables, first.notes) == (62.1, (1,), ("the paper also prints 61.6 (Table 5)",))
    assert (second.paper.value, second.tables) == (61.6, (5,))


def test_test_time_is_compared_on_the_83_problems(tmp_path):
    model = trained(tmp_path / "run", "test_time/llama3.1-8b-instruct/amc23/ttrl")
    greedy = {"protocol": "greedy", "n": 1}
    runs = [("t", write_run(tmp_path / "e", *(measured(name, 0.3, model, **greedy) for name in ("amc23", "amc83"))))]
    small, large = compare(runs)
    assert small.paper is None
    assert "its test-time column AMC23 is compared with amc83" in small.notes[0]
    assert large.paper.value == 32.3
    assert "printed as AMC23; taken as the 83 problems of the TTRL line" in large.notes
    assert "32.3 is the share of no whole number of 83 × 1 responses" in large.notes


def test_what_keeps_two_numbers_apart_is_said(tmp_path):
    run = write_run(tmp_path / "e", measured("aime25", 0.1, protocol="greedy", n=1, problems=29))
    assert compare([("base", run)])[0].notes == (
        "ours by protocol greedy with 1 responses, the paper's by paper with 16",
        "ours of 29 problems, the paper's taken as of 30",
    )


@pytest.mark.parametrize(
    ("model", "benchmark", "note"),
    [
        ("who/else", "math500", "the paper has nothing on the model who/else; it has Qwen/Qwen3-4B-Base"),
        (QWEN, "amc83", f"the paper has no amc83 of base of {QWEN}"),
        (LLAMA, "math500", f"the paper has no base of {LLAMA}"),
        ("./here", "math500", "it is not known what ./here is: it lies in no run's folder. Say it with --base"),
    ],
)
def test_what_the_paper_lacks_is_said_and_kept(tmp_path, model, benchmark, note):
    runs = [("r", write_run(tmp_path / "e", measured(benchmark, 0.5, model)))]
    (found,) = compare(runs)
    assert found.ours.value == 50.0
    assert (found.paper, found.difference, found.overlap) == (None, None, None)
    assert found.notes[0].startswith(note)
    made = build_table(runs)
    assert made.lines[0].cells[0].value == 50.0
    assert made.notes[0].startswith(f"r, {BENCHMARKS[benchmark].title}: {note}")


def test_the_texts_have_every_comparison(tmp_path):
    found = compare([("base", write_run(tmp_path / "e", measured("math500", 0.5), measured("amc83", 0.4)))])
    text, records, content = (text_of_comparisons(found, style) for style in ("markdown", "csv", "json"))
    lines = text.splitlines()
    assert lines[2:4] == [
        "| base | AMC (83) | 40.0 [35.0, 45.0] | – | – | – | – | [1] |",
        "| base | MATH-500 | 50.0 [45.0, 55.0] | 68.0 [63.8, 71.9] | -18.0 | no "
        "| Qwen3-4B-Base (Tables 1, 2, 5 and 6) |  |",
    ]
    assert lines[-1] == f"- [1] the paper has no amc83 of base of {QWEN}"
    assert "theirs is Wilson's for a share of as many trials as the benchmark has problems" in text
    amc, math = csv.DictReader(records.splitlines())
    assert (amc["ours_value"], amc["paper_value"], amc["overlap"]) == ("40.00", "", "")
    assert (math["ours_problems"], math["paper_low"], math["difference"], math["overlap"]) == (
        "500", "63.79", "-18.00", "no",
    )  # fmt: skip
    assert (math["tables"], amc["notes"]) == ("1 2 5 6", f"the paper has no amc83 of base of {QWEN}")
    amc, math = json.loads(content)
    assert (amc["paper"], math["paper"]["value"], math["overlap"], math["tables"]) == (None, 68.0, False, [1, 2, 5, 6])


def test_the_table_has_the_papers_rows_of_the_model_unasked(tmp_path):
    model = trained(tmp_path / "run", "ablations/kappa-8")
    runs = [("mine", write_run(tmp_path / "e", measured("math500", 0.7, model), measured("aime24", 0.2, model)))]
    made = build_table(runs)
    rows = {(line.run, line.origin): [cell and cell.value for cell in line.cells] for line in made.lines}
    assert rows["mine", "ours"] == [20.0, 70.0, 45.0]
    assert rows["RESTRAIN, on dapo14k", "paper, Tables 1, 4, 5, 7, 8 and 9"] == [20.3, 83.0, pytest.approx(51.65)]
    assert rows["κ = 8, on dapo14k", "paper, Table 9"] == [None, 67.3, None]
    assert not any("synthetic-s1k" in name or "σ" in name for name, _ in rows)
    assert "| κ = 8, on dapo14k | paper, Table 9 | – | 67.3 | – |" in text_of_table(made, "markdown")
    assert '"TTRL, on dapo14k","paper, Tables 1 and 5",MATH-500,76.30,,' in text_of_table(made, "csv").splitlines()
    assert json.loads(text_of_table(made, "json"))["lines"][0]["cells"][1]["value"] == 70.0


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
