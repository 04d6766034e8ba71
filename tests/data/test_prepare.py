"""Prepared training files: prompts without answers, gold in a sidecar joined by hash, and every check."""

import json
from dataclasses import replace

import pytest
from pydantic import ValidationError

from restrain_openrlhf.data.catalogue import DAPO14K, OWN, TRAINING_SETS, training_set
from restrain_openrlhf.data.gold_split import PromptOnly, load_gold
from restrain_openrlhf.data.identity import set_digest, text_hash
from restrain_openrlhf.data.prepare import Checks, prepare
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.hook.prompts import PromptSource, load_prompts
from tests.data.hub_layout import parquet_folder
from tests.data.test_sources import DAPO_ROW

WITH_GOLD = replace(OWN, answer="answer")
ROWS = [{"id": "a", "problem": "1+1=", "answer": "2"}, {"id": "b", "problem": "2+2=", "answer": 4}]


def test_gold_goes_to_the_sidecar_alone(write_jsonl, tmp_path):
    out = tmp_path / "train.jsonl"
    made = prepare(WITH_GOLD, str(write_jsonl("own.jsonl", ROWS)), out, Checks())
    assert [json.loads(line) for line in out.read_text().splitlines()] == [
        {"id": "a", "problem": "1+1="},
        {"id": "b", "problem": "2+2="},
    ]
    assert made.gold == tmp_path / "train.gold.jsonl"
    assert load_gold(made.gold) == {text_hash("1+1="): "2", text_hash("2+2="): "4"}
    assert (made.count, made.digest, made.digest_checked) == (2, set_digest(["2+2=", "1+1="]), False)
    assert json.loads((tmp_path / "train.about.json").read_text())["digest"] == made.digest
    assert [prompt.text for prompt in load_prompts(PromptSource(str(out), "problem"))] == ["1+1=", "2+2="]


def test_a_training_file_with_answers_is_written_where_it_is_asked_for(write_jsonl, tmp_path):
    """And OpenRLHF's own reading of it is what gold GRPO trains on: see tests/e2e/test_study.py."""
    source, supervised = str(write_jsonl("own.jsonl", ROWS)), tmp_path / "supervised.jsonl"
    prepare(WITH_GOLD, source, tmp_path / "train.jsonl", Checks(), supervised)
    assert [json.loads(line) for line in supervised.read_text().splitlines()] == [
        {"id": "a", "problem": "1+1=", "answer": "2"},
        {"id": "b", "problem": "2+2=", "answer": "4"},
    ]
    assert "answer" not in (tmp_path / "train.jsonl").read_text()


def test_a_training_file_with_answers_needs_an_answer_for_every_prompt(write_jsonl, tmp_path):
    source = str(write_jsonl("own.jsonl", ROWS))
    with pytest.raises(DataError, match=r"2 of 2 prompts have no answer \(row 1 is the first\).*--answer-column"):
        prepare(OWN, source, tmp_path / "train.jsonl", Checks(), tmp_path / "supervised.jsonl")
    assert not list(tmp_path.glob("train*"))


def test_a_prompt_row_cannot_hold_an_answer():
    with pytest.raises(ValidationError):
        PromptOnly(id="a", problem="1+1=", answer="2")


def test_a_set_without_gold_leaves_no_sidecar_of_an_earlier_one(write_jsonl, tmp_path):
    source, out = str(write_jsonl("own.jsonl", ROWS)), tmp_path / "train.jsonl"
    prepare(WITH_GOLD, source, out, Checks())
    assert prepare(OWN, source, out, Checks()).gold is None
    assert not (tmp_path / "train.gold.jsonl").exists()


def test_dapo_is_taken_as_it_is_from_a_folder_of_the_hubs_layout(tmp_path):
    pytest.importorskip("datasets", reason="needs datasets: pip install restrain-openrlhf[data]")
    other = {**DAPO_ROW, "prompt": " Two  spaces\n", "solution": "34"}
    folder = parquet_folder(tmp_path / "dapo", [DAPO_ROW, other], "train", "en")
    with pytest.raises(DataError, match=r"2 rows, and the known set has 14,116.*--any-count"):
        prepare(DAPO14K, str(folder), tmp_path / "t.jsonl", Checks())
    made = prepare(DAPO14K, str(folder), tmp_path / "t.jsonl", Checks(any_count=True))
    assert json.loads(made.prompts.read_text().splitlines()[1]) == {"id": "1", "problem": " Two  spaces\n"}
    assert load_gold(made.gold)[text_hash(" Two  spaces\n")] == "34"


@pytest.mark.parametrize(
    ("rows", "checks", "message"),
    [
        ([], Checks(), "no rows"),
        (
            [{"id": 1, "text": "x", "answer": "1"}],
            Checks(),
            "row 1: has no column 'problem'; its columns are answer, id",
        ),
        ([ROWS[0], {"id": 2, "problem": " ", "answer": "1"}], Checks(), "row 2: 'problem' is ' '"),
        ([ROWS[0], ROWS[0]], Checks(), "1 prompts are there more than once: row 2 as row 1.*--drop-duplicates"),
        ([ROWS[0], {**ROWS[0], "answer": "3"}], Checks(drop_duplicates=True), "different answers: row 2 as row 1"),
        ([ROWS[0], {**ROWS[1], "id": "a"}], Checks(), "row 1 and row 2 have the same id 'a'"),
        (ROWS, Checks(expected_digest="0" * 64), "not 0000.*another set"),
    ],
)
def test_what_is_wrong_is_refused(write_jsonl, tmp_path, rows, checks, message):
    source = str(write_jsonl("own.jsonl", rows))
    with pytest.raises(DataError, match=message):
        prepare(WITH_GOLD, source, tmp_path / "t.jsonl", checks)
    assert not (tmp_path / "t.jsonl").exists()


def test_duplicates_are_dropped_only_when_asked(write_jsonl, tmp_path):
    source = str(write_jsonl("own.jsonl", [*ROWS, ROWS[0]]))
    made = prepare(WITH_GOLD, source, tmp_path / "t.jsonl", Checks(drop_duplicates=True))
    assert (made.count, made.dropped_duplicates) == (2, 1)


def test_the_right_digest_is_reported_as_checked(write_jsonl, tmp_path):
    checks = Checks(expected_digest=set_digest(["1+1=", "2+2="]))
    assert prepare(WITH_GOLD, str(write_jsonl("o.jsonl", ROWS)), tmp_path / "t.jsonl", checks).digest_checked


def test_names_are_known_or_refused():
    assert training_set("dapo14k") is TRAINING_SETS["dapo14k"]
    with pytest.raises(DataError, match=r"no known training set\. Known: dapo14k"):
        training_set("dapo")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"answer": "1"}], "line 1: has neither"),
        (
            [{"problem": "p", "answer": "1"}, {"problem": "p", "answer": "2"}],
            "line 2: the same problem has the answers",
        ),
    ],
)
def test_bad_gold_is_refused(write_jsonl, rows, message):
    with pytest.raises(DataError, match=message):
        load_gold(write_jsonl("gold.jsonl", rows))


def test_the_first_prompts_of_a_set_that_is_checked_whole(write_jsonl, tmp_path):
    source, out = str(write_jsonl("own.jsonl", ROWS)), tmp_path / "train.jsonl"
    whole = [json.loads(line) for line in prepare(WITH_GOLD, source, out, Checks()).prompts.read_text().splitlines()]
    made = prepare(WITH_GOLD, source, tmp_path / "first.jsonl", Checks(), first=1)
    assert [json.loads(line) for line in made.prompts.read_text().splitlines()] == whole[:1]
    assert (made.count, len(made.gold.read_text().splitlines()), made.dropped_duplicates) == (1, 1, 0)
    with pytest.raises(DataError, match=r"has 2 prompts, and the first 3 were asked for"):
        prepare(WITH_GOLD, source, tmp_path / "more.jsonl", Checks(), first=3)


def test_a_benchmarks_own_problems_are_left_out(write_jsonl, tmp_path):
    """Word by word: case, spacing, dollars and punctuation do not count; another number does."""
    texts = ["What is $1+1$?", "what is 1 + 1", "What is $1+2$?"]
    rows = [{"id": str(place), "problem": text, "answer": "2"} for place, text in enumerate(texts)]
    checks = Checks(held_out=("What is $1+1$?",))
    made = prepare(WITH_GOLD, str(write_jsonl("own.jsonl", rows)), tmp_path / "t.jsonl", checks)
    assert [json.loads(line)["problem"] for line in made.prompts.read_text().splitlines()] == ["What is $1+2$?"]
    assert (made.count, made.dropped_held_out, made.dropped_duplicates) == (1, 2, 0)
    assert made.digest == set_digest(["What is $1+2$?"])
