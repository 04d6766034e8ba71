"""Benchmarks from small files in the shapes (columns, types, layout) in which the hub and repositories have them."""

import csv
import json

import pytest

from restrain_openrlhf.data.benchmarks import BENCHMARKS, load_benchmark
from restrain_openrlhf.data.problems import problem_of, with_choices
from restrain_openrlhf.errors import DataError
from tests.data.hub_layout import parquet_folder, text_folder

datasets = pytest.importorskip("datasets", reason="needs datasets: pip install restrain-openrlhf[data]")


def pairs(loaded):
    return [(problem.id, problem.problem, problem.answer) for problem in loaded.problems]


OLYMPIAD = {
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
MATH = {
    "problem": "What?",
    "solution": "So $3$.",
    "answer": "3",
    "subject": "Algebra",
    "level": 2,
    "unique_id": "t/1.json",
}
# Name, split, configuration, a row as the hub's set has it, and the problem it is.
HUB = [
    ("math500", "test", "default", MATH, ("t/1.json", "What?", "3")),
    (
        "amc23",
        "test",
        "default",
        {"id": 0, "question": "How far?", "answer": "27", "url": "u"},
        ("0", "How far?", "27"),
    ),
    ("amc83", "train", "default", {"id": 5, "problem": "What?", "answer": 142.0, "url": "u"}, ("5", "What?", "142")),
    ("amc83", "train", "default", {"id": 6, "problem": "And?", "answer": 0.5, "url": ""}, ("6", "And?", "0.5")),
    (
        "aime24",
        "train",
        "default",
        {"id": 60, "problem": "Aya?", "solution": "s", "answer": "025", "url": "u", "year": "2024"},
        ("60", "Aya?", "025"),
    ),
    (
        "aime25",
        "train",
        "default",
        {"problem_idx": 1, "problem": "Find.", "answer": 70, "problem_type": ["Number Theory"]},
        ("1", "Find.", "70"),
    ),
    ("olympiadbench", "train", "OE_TO_maths_en_COMP", OLYMPIAD, ("1606", "How many moves?", "2")),
    ("minerva_math", "test", "default", {"question": "How wide?", "answer": "1.6"}, ("0", "How wide?", "1.6")),
]


@pytest.mark.parametrize(("name", "split", "config", "row", "problem"), HUB)
def test_a_row_of_the_hub(tmp_path, name, split, config, row, problem):
    folder = parquet_folder(tmp_path / name, [row], split, config)
    assert pairs(load_benchmark(f"{name}={folder}")) == [problem]


def test_amc83_as_csv_and_with_another_number_of_problems(tmp_path):
    (tmp_path / "amc83.csv").write_text("id,problem,answer,url\n0,m+n?,142.0,u\n1,Half?,0.5,u\n")
    loaded = load_benchmark("amc83", tmp_path)
    assert pairs(loaded) == [("0", "m+n?", "142"), ("1", "Half?", "0.5")]
    assert loaded.warning == "amc83: 2 problems, 83 in the known set: not comparable."


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


GPQA = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")


def gpqa_csv(folder, rows):
    """As on the hub, and as `dataset/gpqa_diamond.csv` of the paper's repository."""
    text_folder(folder, "gpqa_diamond.csv", "", "train", "gpqa_diamond")
    with (folder / "gpqa_diamond.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("Pre-Revision Question", "Record ID", "Question", *GPQA), *rows])
    return folder


def test_gpqa_diamond_shuffles_choices_the_same_way_every_time(tmp_path):
    rows = [("?", f"rec{i}", f"Question {i}?", f"right{i}\n", "wrong a", "wrong b", "wrong c") for i in range(40)]
    folder = gpqa_csv(tmp_path / "gpqa_diamond", rows)
    first, second = (load_benchmark(f"gpqa_diamond={folder}{path}") for path in ("", "/gpqa_diamond.csv"))
    assert first.problems == second.problems
    for place, problem in enumerate(first.problems):
        assert problem.id == f"rec{place}"
        assert f"({problem.answer}) right{place}" in problem.problem
    assert {problem.answer for problem in first.problems} == set("ABCD")


def test_s1k_is_read_from_a_copy_alone(write_jsonl):
    with pytest.raises(DataError, match="No place on the hub is known for this set"):
        load_benchmark("s1k")
    loaded = load_benchmark(f"s1k={write_jsonl('s1k.jsonl', [{'problem': '1+1?', 'answer': '2'}])}")
    assert pairs(loaded) == [("0", "1+1?", "2")]
    assert loaded.warning == "s1k: 1 problems, 893 in the known set: not comparable."


def test_every_benchmark_is_read_in_the_hubs_shape_above():
    assert set(BENCHMARKS) == {name for name, *_ in HUB} | {"mmlu_stem", "gpqa_diamond", "s1k"}


# A row of a repository's file, and the problem it is. Unless said otherwise it is Qwen2.5-Math's evaluation/data.
BOXED = r"so\n\[ s = \boxed{0.6} \] and then \[ d = \boxed{1.6} \mathrm{~cm} \]"
FIELD = {"question": "A field? ", "choices": ["0", " 4 ", "2", "6"]}
RENDERED = "A field?\nAnswer Choices: (A) 0 (B) 4 (C) 2 (D) 6"
FILES = [
    ("math500", MATH, ("t/1.json", "What?", "3")),  # PRM800K's math_splits/test.jsonl
    (
        "amc23",
        {"id": 7, "problem": "How far?", "answer": 27.0, "url": "u", "question": "How far?"},
        ("7", "How far?", "27"),
    ),
    ("amc83", {"id": 0, "problem": "What?", "answer": "142.0", "url": "u"}, ("0", "What?", "142")),
    ("amc83", {"id": 0, "problem": "What?", "answer": "-142.00", "url": "u"}, ("0", "What?", "-142")),
    ("amc83", {"id": "0", "problem": "What?", "answer": "142"}, ("0", "What?", "142")),
    ("amc83", {"id": 1, "problem": "And?", "answer": "1.05", "url": "u"}, ("1", "And?", "1.05")),
    (
        "aime24",
        {"id": 60, "problem": "Aya?", "solution": r"$\framebox{5}$", "answer": "204", "url": "u", "question": "Aya?"},
        ("60", "Aya?", "204"),
    ),
    ("aime24", {"id": 60, "problem": "Aya?", "solution": r"\boxed{204}", "url": "u"}, ("60", "Aya?", "204")),  # math-ai
    ("aime25", {"problem": "Find.", "answer": "70", "id": "0"}, ("0", "Find.", "70")),  # math-ai
    ("aime25", {"question": "Find.", "answer": "70"}, ("0", "Find.", "70")),  # opencompass
    (
        "olympiadbench",
        {key: OLYMPIAD[key] for key in ("id", "subfield", "context", "question", "solution", "final_answer", "unit")},
        ("1606", "How many moves?", "2"),
    ),
    (
        "minerva_math",
        {"problem": "How wide?", "solution": BOXED, "type": "Introduction to Astronomy", "idx": 3},
        ("3", "How wide?", "1.6"),
    ),
    ("mmlu_stem", {**FIELD, "type": "abstract_algebra", "answer": 1}, ("0", RENDERED, "B")),
    ("mmlu_stem", {**FIELD, "subject": "abstract_algebra", "answer": "B"}, ("0", RENDERED, "B")),
]


@pytest.mark.parametrize(("name", "row", "problem"), FILES)
def test_a_row_of_a_repositorys_file(write_jsonl, name, row, problem):
    path = write_jsonl(f"{name}.jsonl", [row])
    assert pairs(load_benchmark(name, path.parent)) == [problem]


def test_a_folder_of_folders_as_in_qwens_repository(tmp_path):
    (tmp_path / "mmlu_stem").mkdir()
    row = {**FIELD, "type": "abstract_algebra", "answer": 1}
    (tmp_path / "mmlu_stem" / "test.jsonl").write_text(json.dumps(row) + "\n")
    by_name, by_path = load_benchmark("mmlu_stem", tmp_path), load_benchmark(f"mmlu_stem={tmp_path / 'mmlu_stem'}")
    assert by_name == by_path
    assert pairs(by_name) == [("0", RENDERED, "B")]


MMLU = {**FIELD, "subject": "astronomy", "answer": 1}
QUESTION = {"Question": "Q?", **dict.fromkeys(GPQA, "a")}


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("math500", {"problem": "A field?", "choices": ["0", "4"], "answer": "4"}, "without the choices in choices"),
        ("mmlu_stem", {**MMLU, "choices": ["a", "b"]}, r"`choices` is \['a', 'b'\]; it must be a list of four"),
        ("mmlu_stem", {**MMLU, "answer": -1}, "`answer` is -1; it must be a choice's place, 0 to 3"),
        ("mmlu_stem", {**MMLU, "subject": "law"}, "none of its 1 rows is one of the set"),
        ("gpqa_diamond", {**QUESTION, "Incorrect Answer 2": None}, "`Incorrect Answer 2` is empty"),
        (
            "olympiadbench",
            {"question": "Q", "final_answer": "['$2$']"},
            "`final_answer` is .* must be a list of answers",
        ),
        ("minerva_math", {"problem": "Q", "solution": "so 2"}, r"no `answer`, and its `solution` has no \\boxed"),
        ("amc23", {"id": 1, "question": "Q", "answer": None}, "its answer is None"),
        ("amc83", {"id": 1, "problem": "Q", "answer": float("nan")}, "its answer is nan"),
        ("aime24", {"id": 1, "problem": "Q", "answer": ["1", "2"]}, r"its answer is \['1', '2'\]"),
    ],
)
def test_a_set_that_lacks_what_it_needs_is_refused_by_file_row_and_columns(write_jsonl, name, row, message):
    path = write_jsonl(f"{name}.jsonl", [row])
    with pytest.raises(DataError, match=message) as refusal:
        load_benchmark(name, path.parent)
    assert f"{name} ({path})" in str(refusal.value)
    assert "Give rows with " in str(refusal.value) or "Give the whole set" in str(refusal.value)


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
    path = write_jsonl("mine.jsonl", [{"question": "1+1=", "answer": 2}])
    for word, name in ((str(path), "mine"), (f"sums={path}", "sums")):
        loaded = load_benchmark(word)
        assert (loaded.name, pairs(loaded)) == (name, [("0", "1+1=", "2")])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "has no problems"),
        ([{"problem": "p"}], "line 1: its columns are problem. Give rows with problem or question, answer or solution"),
        ([{"id": 1, "problem": "p", "answer": "1"}] * 2, "the id '1' appears twice"),
    ],
)
def test_bad_rows_are_refused(write_jsonl, rows, message):
    with pytest.raises(DataError, match=message):
        load_benchmark(str(write_jsonl("mine.jsonl", rows)))


def test_a_folder_without_the_file_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"has no aime24\.jsonl"):
        load_benchmark("aime24", tmp_path)
