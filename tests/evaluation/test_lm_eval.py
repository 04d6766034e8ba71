"""The export's files against lm-evaluation-harness 0.4.13: names, fields and hashes, and their own readers' steps."""

import hashlib
import json
import re

import pytest

from restrain_openrlhf.errors import RunError
from restrain_openrlhf.evaluation.lm_eval import FILTER, export
from restrain_openrlhf.evaluation.result import grade_folder
from tests.commands import refused, restrain
from tests.evaluation.conftest import Engine, Toy

# `SampleResult` in their result_schema.py, and the metric.
SAMPLE = "doc_id doc target arguments resps filtered_resps filter metrics doc_hash prompt_hash target_hash exact_match"
# What EvaluationTracker and evaluate() write, without what only their own program can say.
RESULTS = "results group_subtasks configs versions n-shot higher_is_better n-samples config date task_hashes"
TRACKER = """model_source model_name model_name_sanitized system_instruction system_instruction_sha
fewshot_as_multiturn chat_template chat_template_sha"""
# What 0.4.13 itself wrote for the problem 2 of a task of these problems, with its `dummy` model.
HASHES = {
    "doc_hash": "fc0ec0c1d3ad11e2956b31845b5c5d5c568119679ad830e3e944ecb1af91b431",
    "prompt_hash": "bee98bf120e8906382754c6be52860ac5dbc65a1ca4dbee7576267d8fd3367e1",
    "target_hash": "d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35",
}


@pytest.fixture
def exported(toy):
    """The paths of samples and results, and both read."""
    toy.sampling(model="org/model:v1").run(Engine)
    grade_folder(toy.folder)
    samples, results = export([toy.folder], toy.run / "lm-eval")
    return samples, results, [json.loads(line) for line in samples.open()], json.loads(results.read_text())


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def test_files_are_named_as_theirs(toy, exported):
    samples, results, *_ = exported
    assert samples.parent == results.parent == toy.run / "lm-eval" / "org__model__v1"
    # Their get_file_task_name and get_file_datetime cut at the first and the last underscore.
    task, date = re.fullmatch(r"samples_(.+)_([^_]+)\.jsonl", samples.name).groups()
    assert (task, results.name) == ("toy", f"results_{date}.json")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{6}", date)


def test_a_sample_is_a_problem_with_all_that_was_drawn(exported):
    *_, rows, _ = exported
    row = rows[2]
    assert len(rows) == 150
    assert set(row) == set(SAMPLE.split())
    assert (row["doc_id"], row["doc"], row["target"]) == (2, {"id": "2", "problem": "q2", "answer": "2"}, "2")
    assert row["arguments"]["gen_args_0"]["arg_0"] == "q2"
    assert row["arguments"]["gen_args_0"]["arg_1"] == {
        "until": ["</s>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>"],
        "do_sample": True,
        "temperature": 0.6,
        "top_p": 0.95,
        "max_gen_toks": 8,
    }
    assert row["resps"] == [[r"\boxed{2}", r"\boxed{2}", r"\boxed{-1}", r"\boxed{-1}"]]
    assert row["filtered_resps"] == [["2", "2", "-1", "-1"]]
    assert (row["filter"], row["metrics"], row["exact_match"]) == (FILTER, ["exact_match"], 0.5)
    assert {name: row[name] for name in HASHES} == HASHES


def test_results_hold_the_headline_number(toy, exported):
    *_, rows, results = exported
    assert set(results) == set(f"{RESULTS} {TRACKER}".split())
    numbers = results["results"]["toy"]
    # Shares 0, 1/4 and 1/2 of 50 problems each: s² of them is 150 / 149 / 24.
    assert numbers[f"exact_match,{FILTER}"] == pytest.approx(0.25)
    assert numbers[f"exact_match_stderr,{FILTER}"] == pytest.approx((1 / 149 / 24) ** 0.5)
    assert numbers["sample_len"] == 150
    assert numbers[f"exact_match,{FILTER}"] == grade_folder(toy.folder)[0].scores.pass_at_1
    assert results["n-samples"] == {"toy": {"original": 150, "effective": 150}}
    assert (results["n-shot"], results["higher_is_better"]) == ({"toy": 0}, {"toy": {"exact_match": True}})
    assert results["task_hashes"]["toy"] == sha256(
        "".join(row["doc_hash"] + row["prompt_hash"] + row["target_hash"] for row in rows)
    )
    config = results["configs"]["toy"]
    assert (config["output_type"], config["repeats"], config["metric_list"][0]["metric"]) == (
        "generate_until",
        4,
        "exact_match",
    )
    assert [each["name"] for each in config["filter_list"]] == [FILTER]


def test_the_samples_are_a_data_set(exported):
    datasets = pytest.importorskip("datasets", reason="needs datasets: pip install restrain-openrlhf[data]")
    samples, _, rows, _ = exported
    loaded = datasets.Dataset.from_json(str(samples))
    assert loaded["exact_match"][:] == [row["exact_match"] for row in rows]
    assert loaded[0]["filtered_resps"] == rows[0]["filtered_resps"]


def test_one_response_is_a_text_and_a_missing_answer_is_theirs(toy):
    class Silent(Engine):
        def _group(self, number):
            return [super()._group(number)[0].__class__("no answer", 2, truncated=False)]

    toy.sampling(n=1).run(Silent)
    grade_folder(toy.folder)
    row = json.loads(export([toy.folder], toy.run / "lm-eval")[0].open().readline())
    assert (row["resps"], row["filtered_resps"], row["exact_match"]) == ([["no answer"]], ["[invalid]"], 0.0)


def test_the_export_needs_results_and_no_new_sampling(toy):
    toy.sampling().run(Engine)
    with pytest.raises(RunError, match="has no result yet"):
        export([toy.folder], toy.run / "lm-eval")
    done = restrain("regrade", toy.run, "--export", "lm-eval")
    assert done.returncode == 0, done.stderr
    assert len(list((toy.run / "lm-eval" / "m").glob("*_toy_*.jsonl"))) == 1
    assert restrain("regrade", toy.run, "--export", "lm-eval").returncode == 0
    assert "is no format. Known: lm-eval" in refused("regrade", toy.run, "--export", "helm")


def test_several_benchmarks_are_one_results_file(toy, tmp_path):
    other = Toy(toy.run, 3)
    toy.sampling().run(Engine)
    grade_folder(toy.folder)
    second = toy.run / "second_task"
    toy.folder.path.rename(second)
    for path in [*second.glob("*provenance.json"), second / "result.json"]:
        path.write_text(path.read_text().replace('"benchmark": "toy"', '"benchmark": "second_task"'))
    other.sampling().run(Engine)
    assert restrain("regrade", toy.run, "--export", "lm-eval").returncode == 0
    (results,) = (toy.run / "lm-eval").rglob("results_*.json")
    assert set(json.loads(results.read_text())["results"]) == {"toy", "second_task"}
