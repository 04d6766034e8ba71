"""The table in its three formats, with and without a paper's numbers; golden text throughout."""

import pytest

from restrain_openrlhf.errors import ConfigError, DataError
from restrain_openrlhf.evaluation.result import Result, Scores
from restrain_openrlhf.evaluation.table import build_table, read_paper
from restrain_openrlhf.evaluation.table_text import comma_separated, latex, markdown
from tests.evaluation.conftest import provenance


def result(name, title, value, model="m", **labels):
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
    how = provenance(3, benchmark=name, title=title, model=model, labels=labels)
    return Result(provenance=how, scores=scores, extractor_version="1", grader_version="1")


def write_run(folder, *results):
    for each in results:
        path = folder / each.provenance.benchmark
        path.mkdir(parents=True)
        (path / "problems.jsonl").write_text("")
        (path / "result.json").write_text(each.model_dump_json())
    return folder


@pytest.fixture
def runs(tmp_path):
    first = write_run(tmp_path / "a", result("aime24", "AIME24", 0.2), result("amc23", "AMC23", 0.5))
    second = write_run(tmp_path / "b", result("aime24", "AIME24", 0.25, model="n_1"))
    return [("base", first), ("R & D", second)]


PAPER = {("base", "aime24"): 21.5, ("base", "amc23"): 48.0}


def test_markdown(runs):
    assert markdown(build_table(runs, PAPER)) == (
        "| run |  | AIME24 | AMC23 | mean |\n"
        "| --- | --- | ---: | ---: | ---: |\n"
        "| base | ours | 20.0 [15.0, 25.0] | 50.0 [45.0, 55.0] | 35.0 |\n"
        "| base | paper | 21.5 | 48.0 | 34.8 |\n"
        "| R & D | ours | 25.0 [20.0, 30.0] | – | – |\n"
        "\n"
        "- pass@1 in per cent [95 % interval]\n"
        "- base: m, protocol paper (n 4, T 0.6, top-p 0.95, up to 8 tokens), template plain\n"
        "- R & D: n_1, protocol paper (n 4, T 0.6, top-p 0.95, up to 8 tokens), template plain\n"
    )


def test_latex(runs):
    text = latex(build_table(runs[1:], {}))
    assert text == (
        "% R & D: n_1, protocol paper (n 4, T 0.6, top-p 0.95, up to 8 tokens), template plain\n"
        "\\begin{tabular}{llrr}\n\\toprule\n"
        "run &  & AIME24 & mean \\\\\n\\midrule\n"
        "R \\& D & ours & 25.0 {\\scriptsize [20.0, 30.0]} & 25.0 \\\\\n"
        "\\bottomrule\n\\end{tabular}\n"
    )


def test_csv(runs):
    assert comma_separated(build_table(runs[:1], PAPER)) == (
        "run,origin,benchmark,pass_at_1,low,high\n"
        "base,ours,AIME24,20.00,15.00,25.00\n"
        "base,ours,AMC23,50.00,45.00,55.00\n"
        "base,ours,mean,35.00,,\n"
        "base,paper,AIME24,21.50,,\n"
        "base,paper,AMC23,48.00,,\n"
        "base,paper,mean,34.75,,\n"
    )


def test_the_papers_numbers_come_from_a_file(tmp_path):
    path = tmp_path / "paper.csv"
    path.write_text("run,benchmark,pass_at_1\nbase,aime24,21.5\nbase,amc23,48\n")
    assert read_paper(path) == PAPER


@pytest.mark.parametrize("text", ["run,benchmark\nbase,aime24\n", "run,benchmark,pass_at_1\nbase,aime24,much\n"])
def test_another_form_of_that_file_is_refused(tmp_path, text):
    path = tmp_path / "paper.csv"
    path.write_text(text)
    with pytest.raises(DataError, match="columns run, benchmark, pass_at_1"):
        read_paper(path)


def test_names_must_differ(runs):
    with pytest.raises(ConfigError, match="Two runs have one name"):
        build_table([runs[0], ("base", runs[1][1])], {})
