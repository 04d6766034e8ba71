"""Each benchmark read by its own loader from a small folder in the shape (columns, types, layout) it has on the hub."""

import json

import pytest

from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.benchmarks import BENCHMARKS
from restrain_openrlhf.evaluation.loading import load_benchmark
from restrain_openrlhf.evaluation.problems import problem_of, with_choices
from tests.data.hub_layout import parquet_folder, text_folder

datasets = pytest.importorskip("datasets", reason="needs datasets: pip install restrain-openrlhf[data]")


def pairs(loaded):
    return [(problem.id, problem.problem, problem.answer) for problem in loaded.problems]


def test_math500(tmp_path):
    row = {
        "problem": "What?",
        "solution": "So $3$.",
        "answer": "3",
        "subject": "Algebra",
        "level": 2,
        "unique_id": "t/1.json",
    }
    folder = text_folder(tmp_path / "math500", "test.jsonl", json.dumps(row) + "\n", "test")
    assert pairs(load_benchmark(f"math500={folder}")) == [("t/1.json", "What?", "3")]


def test_amc23(tmp_path):
    rows = [{"id": 0, "question": "How far?", "answer": "27", "url": "u"}]
    folder = parquet_folder(tmp_path / "amc23", rows, "test")
    assert pairs(load_benchmark(f"amc23={folder}")) == [("0", "How far?", "27")]


def test_amc83_has_numbers_stored_as_fractions_of_one(tmp_path):
    rows = [
        {"id": 5, "problem": "What?", "answer": 142.0, "url": "u"},
        {"id": 6, "problem": "And?", "answer": 0.5, "url": ""},
    ]
    folder = parquet_folder(tmp_path / "amc83", rows, "train")
    assert pairs(load_benchmark(f"amc83={folder}")) == [("5", "What?", "142"), ("6", "And?", "0.5")]


def test_aime24(tmp_path):
    rows = [{"id": 60, "problem": "Aya?", "solution": "s", "answer": "025", "url": "u", "year": "2024"}]
    folder = parquet_folder(tmp_path / "aime24", rows, "train")
    assert pairs(load_benchmark(f"aime24={folder}")) == [("60", "Aya?", "025")]


def test_aime25(tmp_path):
    rows = [{"problem_idx": 1, "problem": "Find.", "answer": 70, "problem_type": ["Number Theory"]}]
    folder = parquet_folder(tmp_path / "aime25", rows, "train")
    assert pairs(load_benchmark(f"aime25={folder}")) == [("1", "Find.", "70")]


def test_olympiadbench(tmp_path):
    row = {
        "id": 1606,
        "question": "How many moves?",
        "solution": ["s"],
        "final_answer": ["$2$"],
        "context": None,
        "modality": "Text-only",
        "difficulty": "Competition",
        "is_multiple_answer": False,
        "unit": None,
        "answer_type": "Numerical",
        "error": None,
        "question_type": "Open-ended",
        "subfield": "Number Theory",
        "subject": "Math",
        "language": "English",
    }
    folder = parquet_folder(tmp_path / "olympiadbench", [row], "train", "OE_TO_maths_en_COMP")
    assert pairs(load_benchmark(f"olympiadbench={folder}")) == [("1606", "How many moves?", "2")]


def test_minerva(tmp_path):
    row = {"question": "Find the diameter.", "answer": "1.6"}
    folder = text_folder(tmp_path / "minerva_math", "test.jsonl", json.dumps(row) + "\n", "test")
    assert pairs(load_benchmark(f"minerva_math={folder}")) == [("0", "Find the diameter.", "1.6")]


def test_mmlu_stem_renders_choices_and_leaves_other_subjects_out(tmp_path):
    features = datasets.Features(
        {
            "question": datasets.Value("string"),
            "subject": datasets.Value("string"),
            "choices": datasets.List(datasets.Value("string")),
            "answer": datasets.ClassLabel(names=["A", "B", "C", "D"]),
        }
    )
    rows = [
        {"question": "A law?", "subject": "jurisprudence", "choices": list("wxyz"), "answer": 0},
        {"question": " A field? ", "subject": "abstract_algebra", "choices": ["0", " 4 ", "2", "6"], "answer": 1},
    ]
    folder = parquet_folder(tmp_path / "mmlu_stem", rows, "test", "all", features)
    expected = "A field?\nAnswer Choices: (A) 0 (B) 4 (C) 2 (D) 6"
    assert pairs(load_benchmark(f"mmlu_stem={folder}")) == [("1", expected, "B")]


def test_gpqa_shuffles_choices_the_same_way_every_time(tmp_path):
    head = "Record ID,Question,Correct Answer,Incorrect Answer 1,Incorrect Answer 2,Incorrect Answer 3\n"
    rows = "".join(f"rec{i},Question {i}?,right{i},wrong a,wrong b,wrong c\n" for i in range(40))
    folder = text_folder(tmp_path / "gpqa_diamond", "gpqa_diamond.csv", head + rows, "train", "gpqa_diamond")
    first, second = (load_benchmark(f"gpqa_diamond={folder}") for _ in range(2))
    assert first.problems == second.problems
    for place, problem in enumerate(first.problems):
        assert problem.id == f"rec{place}"
        assert f"({problem.answer}) right{place}" in problem.problem
    assert {problem.answer for problem in first.problems} == set("ABCD")


def test_s1k_keeps_what_a_grader_can_check(tmp_path):
    columns = {"source_type": "s", "metadata": "{}", "cot": None, "thinking_trajectories": ["t"], "attempt": "a"}
    solutions = [
        ("math", "128"),
        ("math", "First we note\nthat so\nthe answer is $\\boxed{7}$."),
        ("math", "Proof. " + "x" * 200),
        ("crossword", "WORD"),
    ]
    rows = [
        {"solution": text, "question": f"q{i}", "cot_type": kind, **columns} for i, (kind, text) in enumerate(solutions)
    ]
    folder = parquet_folder(tmp_path / "s1k", rows, "train")
    assert pairs(load_benchmark(f"s1k={folder}")) == [("0", "q0", "128"), ("1", "q1", "7")]


def test_every_benchmark_has_a_loading_test():
    tests = set(globals())
    names = {"minerva_math": "minerva", "gpqa_diamond": "gpqa"}
    for name in BENCHMARKS:
        assert any(test.startswith(f"test_{names.get(name, name)}") for test in tests), name


def test_choices_and_yes_or_no_are_worded_as_in_qwens_evaluation():
    assert with_choices("Q ", ["a", 2, " c", "d"]) == "Q\nAnswer Choices: (A) a (B) 2 (C) c (D) d"
    assert problem_of(1, "Is it?", "Yes").problem == "Is it? (Yes or No)"
    assert problem_of(1, "It is.", "False").problem == "It is. (True or False)"
    assert problem_of(1, "It is.", "12").problem == "It is."


@pytest.mark.parametrize("name", ["aime24", "amc23", "amc83", "math500", "minerva_math", "olympiadbench"])
def test_shared_copies_are_whole(shared, name):
    loaded = load_benchmark(name, shared / "benchmarks")
    assert loaded.warning is None
    assert len(loaded.problems) in BENCHMARKS[name].sizes


def test_a_file_of_ones_own_by_path_and_by_name(write_jsonl):
    path = write_jsonl("mine.jsonl", [{"question": "1+1=", "answer": 2}, {"id": "x", "problem": "2+2=", "answer": "4"}])
    assert pairs(load_benchmark(str(path))) == [("0", "1+1=", "2"), ("x", "2+2=", "4")]
    assert load_benchmark(str(path)).name == "mine"
    assert load_benchmark(f"sums={path}").name == "sums"


def test_another_number_of_problems_is_said(write_jsonl):
    path = write_jsonl("aime24.jsonl", [{"id": 1, "problem": "p", "answer": "1"}])
    assert load_benchmark("aime24", path.parent).warning == "aime24: 1 problems, 30 in the known set: not comparable."


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "has no problems"),
        (
            [{"text": "p", "answer": "1"}],
            r"row 1: needs `problem` \(or `question`\) and `answer`; its columns are answer, t",
        ),
        ([{"problem": "p"}], "row 1: needs"),
        ([{"id": 1, "problem": "p", "answer": "1"}] * 2, "the id '1' is there twice"),
        ([{"id": 1, "problem": " ", "answer": "1"}], "'1' has an empty text"),
    ],
)
def test_bad_rows_are_refused(write_jsonl, rows, message):
    with pytest.raises(DataError, match=message):
        load_benchmark(str(write_jsonl("mine.jsonl", rows)))


def test_a_wrong_shape_is_named(tmp_path):
    rows = [{"question": "q", "subject": "astronomy", "choices": ["a", "b"], "answer": 0}]
    folder = parquet_folder(tmp_path / "m", rows, "test", "all")
    with pytest.raises(DataError, match="mmlu_stem, row 1: does not have the set's shape"):
        load_benchmark(f"mmlu_stem={folder}")


@pytest.mark.parametrize(("word", "message"), [("amie24", "Known: math500"), ("x=absent.jsonl", "no such file")])
def test_unknown_names_are_refused(word, message):
    with pytest.raises(DataError, match=message):
        load_benchmark(word)


def test_a_folder_without_the_file_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"has no aime24\.jsonl"):
        load_benchmark("aime24", tmp_path)


def test_the_gated_set_says_what_to_do(monkeypatch):
    def refuse(*args, **kwargs):
        raise datasets.exceptions.DatasetNotFoundError("Dataset 'Idavidrein/gpqa' is a gated dataset on the Hub.")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(DataError, match="accept its terms while logged in, then run `hf auth login`"):
        load_benchmark("gpqa_diamond")
