"""The table in its formats; golden text throughout."""

import pytest

from restrain_openrlhf.evaluation.result import Result, Scores, load_results
from restrain_openrlhf.evaluation.table import build_table, text_of_table
from tests.evaluation.conftest import provenance


def result(name, title, value, model="m"):
    scores = Scores(
        pass_at_1=value,
        low=value - 0.05,
        high=value + 0.05,
        samples_low=value - 0.02,
        samples_high=value + 0.02,
        pass_at_k={1: value},
        maj_at_k={1: value},
        missing_share=0.0,
        mean_tokens=10.0,
        truncated_share=0.0,
    )
    how = provenance(3, benchmark=name, title=title, model=model)
    return Result(provenance=how, scores=scores, extractor_version="1", grader_version="1")


def write_run(folder, *results):
    for each in results:
        path = folder / each.provenance.benchmark
        path.mkdir(parents=True)
        (path / "problems.jsonl").write_text("")
        (path / "result.json").write_text(each.model_dump_json())
    return folder


@pytest.fixture
def table(tmp_path):
    """Of two runs, of which the second lacks a benchmark; without the paper's rows."""
    write_run(tmp_path / "a", result("aime24", "AIME24", 0.2), result("amc23", "AMC23", 0.5))
    write_run(tmp_path / "b", result("aime24", "AIME24", 0.25, model="n_1"))
    runs = {"base": load_results(tmp_path / "a"), "R & D": load_results(tmp_path / "b")}
    return build_table(runs, with_paper=False)


def test_markdown(table):
    assert text_of_table(table, "markdown") == (
        "| run |  | AIME24 | AMC23 | mean |\n"
        "| --- | --- | ---: | ---: | ---: |\n"
        "| base | ours | 20.0 [15.0, 25.0] | 50.0 [45.0, 55.0] | 35.0 |\n"
        "| R & D | ours | 25.0 [20.0, 30.0] | – | – |\n"
        "\n"
        "- pass@1 in per cent [95 % interval]\n"
        "- base: m, protocol paper (n 4, T 0.6, top-p 0.95, up to 8 tokens), template plain\n"
        "- R & D: n_1, protocol paper (n 4, T 0.6, top-p 0.95, up to 8 tokens), template plain\n"
    )


def test_csv(table):
    assert text_of_table(table, "csv") == (
        "run,origin,benchmark,pass_at_1,low,high\n"
        "base,ours,AIME24,20.00,15.00,25.00\n"
        "base,ours,AMC23,50.00,45.00,55.00\n"
        "base,ours,mean,35.00,,\n"
        "R & D,ours,AIME24,25.00,20.00,30.00\n"
    )
