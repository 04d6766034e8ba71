"""Test sets as users have them: every form is read, no answer comes along, and bad ones are told by id."""

import json

import pytest

from restrain_openrlhf.answers import parse_kind
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.data.gold import PromptOnly
from restrain_openrlhf.errors import ConfigError, DataError
from test_time.adaptation import PRESETS, length_overrides, preset_path
from test_time.problems import Source, instructed, keep_problems, load_problems
from tests.conftest import ROOT

ONE, TWO = PromptOnly(id="a", problem="1+1?"), PromptOnly(id="b", problem="2+2?")


def test_jsonl_without_its_answers(write_jsonl):
    path = write_jsonl("p.jsonl", [{"id": "a", "problem": "1+1?", "answer": "2"}, {"id": "b", "problem": "2+2?"}])
    assert load_problems(Source(str(path))) == [ONE, TWO]


def test_csv_and_a_column_of_another_name(tmp_path):
    (tmp_path / "p.csv").write_text('id,text,answer\na,1+1?,2\nb,"2+2?",4\n')
    assert load_problems(Source(str(tmp_path / "p.csv"), column="text")) == [ONE, TWO]
    with pytest.raises(DataError, match=r"row 1: has no known column of prompts; its columns are .* --column"):
        load_problems(Source(str(tmp_path / "p.csv")))


def test_rows_without_ids_are_numbered(write_jsonl):
    path = write_jsonl("p.jsonl", [{"question": "1+1?"}, {"question": "2+2?"}])
    assert [problem.id for problem in load_problems(Source(str(path)))] == ["1", "2"]


def test_a_benchmark_by_name_comes_without_hints_at_its_answers(tmp_path):
    rows = [{"id": 60, "problem": "Is 2 prime?", "answer": "true"}, {"id": 61, "problem": "1+1?", "answer": "2"}]
    (tmp_path / "aime24.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = load_problems(Source("aime24", folder=tmp_path))
    assert found == [PromptOnly(id="60", problem="Is 2 prime?"), PromptOnly(id="61", problem="1+1?")]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"id": 1, "problem": "x"}, {"id": "1", "problem": "y"}, {"id": 2, "problem": "z"}],
            "has ids more than once: '1'",
        ),
        (
            [{"id": n % 3, "problem": f"{n}"} for n in range(6)],
            "more than once: '0', '1', '2'",
        ),
        ([{"id": 1, "problem": "x"}, {"problem": "y"}], "line 2: has no id, and other rows have one"),
        ([], "has no problems"),
        (
            [{"id": 1, "question": "x", "choices": ["a", "b"]}],
            "line 1: its choices are in choices, but training sees only the prompt, which",
        ),
    ],
)
def test_bad_sets_are_told_by_id(write_jsonl, rows, message):
    with pytest.raises(DataError, match=message):
        load_problems(Source(str(write_jsonl("p.jsonl", rows))))


def test_a_word_that_names_nothing():
    with pytest.raises(DataError, match=r"neither a file .* Known benchmarks: .*aime24"):
        load_problems(Source("aime1924"))
    with pytest.raises(DataError, match="no such file"):
        load_problems(Source("absent.jsonl"))


def test_an_option_without_effect_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"--column text: aime24 is a benchmark.* Leave it out"):
        load_problems(Source("aime24", column="text", folder=tmp_path))


@pytest.mark.parametrize(
    ("block", "row", "asked", "response"),
    [
        ({"name": "text", "tag": "city"}, {}, "between <city> and </city>", "I think <city>York</city>"),
        ({"name": "text", "marker": "City:"}, {}, 'End with "City:"', "I think.\nCity: York"),
        ({"name": "text", "read": "last_line"}, {}, "alone on the last line", "I think:\nYork"),
        ({"name": "judge", "callable": "a:b", "tag": "a"}, {}, "<a> and </a>", "<a>York</a>"),
        ({"name": "mixed"}, {"answers": "text"}, "between <answer>", "<answer>York</answer>"),
        ({"name": "mixed"}, {}, r"\boxed{}", r"So \boxed{York}"),
    ],
)
def test_an_answer_as_it_is_asked_for_is_read(block, row, asked, response):
    kind = parse_kind(block)
    (worded,) = instructed([PromptOnly(id="a", problem="Where? ", row=row)], kind)
    assert worded.problem.startswith("Where?\n")
    assert asked in worded.problem
    assert kind.extract(response, row) == "York"


def test_problems_that_were_worked_on_are_not_replaced(tmp_path):
    path = tmp_path / "prompts.jsonl"
    keep_problems(path, [ONE])
    keep_problems(path, [ONE])
    with pytest.raises(DataError, match="another adaptation"):
        keep_problems(path, [ONE, TWO])
    assert json.loads(path.read_text()) == {"id": "a", "problem": "1+1?"}


@pytest.mark.parametrize(
    "columns",
    [
        {"options": ["Lyon", "Paris"]},
        {"options": {"A": "Lyon", "B": "Paris"}},
        {"choices": {"label": ["A", "B"], "text": ["Lyon", "Paris"]}},
    ],
    ids=str,
)
def test_options_are_listed_after_a_problem_that_does_not_name_them(write_jsonl, columns):
    choice = parse_kind({"name": "choice"})
    path = write_jsonl("set.jsonl", [{"problem": "Which is the capital?", "answer": "B", **columns}])
    (problem,) = load_problems(Source(str(path)), choice)
    assert problem.problem == "Which is the capital?\n(A) Lyon\n(B) Paris"
    assert problem.row == columns
    assert choice.extract("The answer is B.", choice.row(problem.problem, problem.model_dump())) == "Paris"


CPU = ROOT / "configs" / "cpu" / "test_time.yaml"


@pytest.mark.parametrize(
    ("count", "name"),
    [
        (1, "aime24"),
        (40, "amc23"),
        (57, "amc23"),
        (58, "amc83"),
        (203, "amc83"),
        (204, "math500"),
    ],
)
def test_the_preset_of_the_nearest_size(count, name):
    """Nearest by ratio: the border of 40 and 83 is their geometric mean, 57.6, of 83 and 500 203.7."""
    assert preset_path("ttrl", count) == PRESETS / name / "ttrl.yaml"


def test_presets_that_are_none():
    with pytest.raises(ConfigError, match=r"--method 'srt_easy'.*Known: ettrl, restrain, ttrl"):
        preset_path("srt_easy", 30)


def test_steps():
    config = load_run_config(CPU)
    assert length_overrides(None, 20, config) == {}
    # 20 problems are 3 batches of 8: 7 steps need 3 episodes.
    assert length_overrides(7, 20, config) == {"steps": 7, "openrlhf.train.num_episodes": 3}
    assert length_overrides(2, 20, config) == {"steps": 2, "openrlhf.train.num_episodes": 1}
