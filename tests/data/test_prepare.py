"""Prepared training files: prompts without answers, gold in a sidecar joined by hash, and every check."""

import hashlib
import json
import math
from dataclasses import replace

import pytest

from restrain_openrlhf.data.gold import load_gold
from restrain_openrlhf.data.identity import set_digest, text_hash
from restrain_openrlhf.data.prepare import prepare
from restrain_openrlhf.data.sources import DAPO14K, OWN
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.reference.prompts import PromptSource, load_prompts
from tests.data.hub_layout import parquet_folder
from tests.data.test_sources import DAPO_ROW

WITH_GOLD = replace(OWN, answer="answer")
ROWS = [{"id": "a", "problem": "1+1=", "answer": "2"}, {"id": "b", "problem": "2+2=", "answer": 4}]


def test_gold_goes_to_the_sidecar_alone(write_jsonl, tmp_path):
    out = tmp_path / "train.jsonl"
    made = prepare(WITH_GOLD, str(write_jsonl("own.jsonl", ROWS)), out)
    assert [json.loads(line) for line in out.read_text().splitlines()] == [
        {"id": "a", "problem": "1+1="},
        {"id": "b", "problem": "2+2="},
    ]
    assert made.gold == tmp_path / "train.gold.jsonl"
    assert load_gold(made.gold).by_problem == {text_hash("1+1="): "2", text_hash("2+2="): "4"}
    assert (made.count, made.digest, made.whole_set.known_digest) == (2, set_digest(["2+2=", "1+1="]), None)
    assert json.loads((tmp_path / "train.about.json").read_text())["digest"] == made.digest
    assert [prompt.text for prompt in load_prompts(PromptSource(str(out), "problem"))] == ["1+1=", "2+2="]


def test_a_training_file_with_answers_is_written_where_it_is_asked_for(write_jsonl, tmp_path):
    """And OpenRLHF's own reading of it is what gold GRPO trains on: see tests/e2e/test_study.py."""
    source, supervised = str(write_jsonl("own.jsonl", ROWS)), tmp_path / "supervised.jsonl"
    prepare(WITH_GOLD, source, tmp_path / "train.jsonl", supervised)
    assert [json.loads(line) for line in supervised.read_text().splitlines()] == [
        {"id": "a", "problem": "1+1=", "answer": "2"},
        {"id": "b", "problem": "2+2=", "answer": "4"},
    ]
    assert "answer" not in (tmp_path / "train.jsonl").read_text()


def test_a_training_file_with_answers_needs_an_answer_for_every_prompt(write_jsonl, tmp_path):
    source = str(write_jsonl("own.jsonl", ROWS))
    with pytest.raises(DataError, match=r"the id 'a' has no answer, but training on gold needs one.*--answer-column"):
        prepare(OWN, source, tmp_path / "train.jsonl", tmp_path / "supervised.jsonl")
    assert not list(tmp_path.glob("train*"))


def test_a_chat_of_one_message_and_gold_in_an_object_are_read_as_verl_writes_them(write_jsonl, tmp_path):
    given = {"prompt": [{"role": "user", "content": "1+1="}], "reward_model": {"ground_truth": "2", "style": "rule"}}
    without = {"prompt": "2+2=", "reward_model": {"ground_truth": None}}
    verls = replace(OWN, prompt="prompt", answer="reward_model.ground_truth")
    made = prepare(verls, str(write_jsonl("own.jsonl", [given, without])), tmp_path / "t.jsonl")
    assert [json.loads(line)["problem"] for line in made.prompts.read_text().splitlines()] == ["1+1=", "2+2="]
    assert load_gold(made.gold).by_problem == {text_hash("1+1="): "2"}
    with pytest.raises(
        DataError, match=r"has no column 'reward_model\.truth'; its columns are id, prompt, reward_model"
    ):
        prepare(
            replace(verls, answer="reward_model.truth"),
            str(write_jsonl("own.jsonl", [{"id": 1, **given}])),
            tmp_path / "t.jsonl",
        )


def test_a_set_without_gold_leaves_no_sidecar_of_an_earlier_one(write_jsonl, tmp_path):
    source, out = str(write_jsonl("own.jsonl", ROWS)), tmp_path / "train.jsonl"
    prepare(WITH_GOLD, source, out)
    assert prepare(OWN, source, out).gold is None
    assert not (tmp_path / "train.gold.jsonl").exists()


def test_dapo_is_taken_as_it_is_from_a_folder_of_the_hubs_layout(tmp_path):
    pytest.importorskip("datasets", reason="needs datasets: pip install restrain-openrlhf[data]")
    other = {**DAPO_ROW, "prompt": " Two  spaces\n", "solution": "34"}
    folder = parquet_folder(tmp_path / "dapo", [DAPO_ROW, other], "train", "en")
    with pytest.raises(DataError, match=r"2 rows, but the known set has 14,116.*--any-count"):
        prepare(DAPO14K, str(folder), tmp_path / "t.jsonl")
    made = prepare(DAPO14K, str(folder), tmp_path / "t.jsonl", any_count=True)
    assert json.loads(made.prompts.read_text().splitlines()[1]) == {"id": "1", "problem": " Two  spaces\n"}
    assert load_gold(made.gold).by_problem[text_hash(" Two  spaces\n")] == "34"


@pytest.mark.parametrize(
    ("rows", "checks", "message"),
    [
        ([], {}, "no rows"),
        (
            [{"id": 1, "text": "x", "answer": "1"}],
            {},
            "line 1: has no known column of prompts; its columns are answer, id, text.*--prompt-column",
        ),
        ([ROWS[0], {"id": 2, "problem": " ", "answer": "1"}], {}, "line 2: its prompt is empty"),
        ([ROWS[0], ROWS[0]], {}, "1 prompts appear more than once: row 2 as row 1.*--drop-duplicates"),
        ([ROWS[0], {**ROWS[0], "answer": "3"}], {"drop_duplicates": True}, "different answers: row 2 as row 1"),
        ([ROWS[0], {**ROWS[1], "id": "a"}], {}, "row 1 and row 2 have the same id 'a'"),
        ([{"problem": "p", "answer": [{"role": "user", "content": "1"}]}], {}, "but a single answer"),
        ([{"problem": "p", "answer": ["1", "2"]}], {}, r"line 1: 'answer' is \['1', '2'\], but a single answer"),
        ([{"problem": "p", "answer": math.nan}], {}, "line 1: 'answer' is nan, but a single answer"),
        ([{"problem": "p", "answer": math.inf}], {}, "line 1: 'answer' is inf, but a single answer"),
    ],
)
def test_what_is_wrong_is_refused(write_jsonl, tmp_path, rows, checks, message):
    source = str(write_jsonl("own.jsonl", rows))
    with pytest.raises(DataError, match=message):
        prepare(WITH_GOLD, source, tmp_path / "t.jsonl", **checks)
    assert not (tmp_path / "t.jsonl").exists()


def test_duplicates_are_dropped_only_when_asked(write_jsonl, tmp_path):
    source = str(write_jsonl("own.jsonl", [*ROWS, ROWS[0]]))
    made = prepare(WITH_GOLD, source, tmp_path / "t.jsonl", drop_duplicates=True)
    assert (made.count, made.dropped_duplicates) == (2, 1)


def known(rows):
    return replace(WITH_GOLD, count=len(rows), digest=set_digest(row["problem"] for row in rows))


def test_the_copy_that_is_known_is_told_from_another_and_recorded(write_jsonl, tmp_path):
    out = tmp_path / "t.jsonl"
    same = prepare(known(ROWS), str(write_jsonl("o.jsonl", reversed(ROWS))), out)
    assert not same.whole_set.is_another
    assert "this is the known copy, 2 prompts" in same.whole_set.verdict("own")
    other = [ROWS[0], {"problem": "2+3=", "answer": "5"}, {"problem": "2+4=", "answer": "6"}]
    another = prepare(known(ROWS), str(write_jsonl("p.jsonl", other)), out, any_count=True)
    assert another.whole_set.is_another
    here, there = (set_digest(row["problem"] for row in rows) for rows in (other, ROWS))
    assert f"This one: 3 prompts, digest {here}. The known one: 2 prompts, digest {there}." in (
        another.whole_set.verdict("own")
    )
    about = json.loads((tmp_path / "t.about.json").read_text())
    assert about["whole_set"] == {"count": 3, "digest": here, "known_count": 2, "known_digest": there}


def test_the_copy_is_compared_before_prompts_are_left_out(write_jsonl, tmp_path):
    rows = [*ROWS, {"problem": "1 + 1 =", "answer": "2"}]
    made = prepare(known(rows), str(write_jsonl("o.jsonl", rows)), tmp_path / "t.jsonl", first=1)
    assert (made.whole_set.is_another, made.whole_set.count, made.count) == (False, 3, 1)
    assert made.digest == set_digest(["1+1="])


def test_the_digest_is_of_the_prompts_in_any_order():
    """By hand: SHA-256 over the sorted SHA-256 of the prompts in hex, a line each. A known digest rests on it."""
    hashes = sorted(hashlib.sha256(text.encode()).hexdigest() for text in ("a", "π"))
    assert set_digest(["π", "a"]) == hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def test_gold_in_a_box_is_the_boxs_content_and_an_empty_one_is_none(write_jsonl, tmp_path):
    """CoT-Self-Instruct writes answers so; a box in the gold would make every response wrong."""
    rows = [{"problem": f"p{place}", "answer": text} for place, text in enumerate((r"\boxed{\frac{1}{2}}", " ", "x"))]
    made = prepare(WITH_GOLD, str(write_jsonl("o.jsonl", rows)), tmp_path / "t.jsonl")
    assert load_gold(made.gold).by_problem == {text_hash("p0"): r"\frac{1}{2}", text_hash("p2"): "x"}


def test_the_first_prompts_of_a_set_that_is_checked_whole(write_jsonl, tmp_path):
    source, out = str(write_jsonl("own.jsonl", ROWS)), tmp_path / "train.jsonl"
    whole = [json.loads(line) for line in prepare(WITH_GOLD, source, out).prompts.read_text().splitlines()]
    made = prepare(WITH_GOLD, source, tmp_path / "first.jsonl", first=1)
    assert [json.loads(line) for line in made.prompts.read_text().splitlines()] == whole[:1]
    assert (made.count, len(made.gold.read_text().splitlines()), made.dropped_duplicates) == (1, 1, 0)
    with pytest.raises(DataError, match=r"has 2 prompts, but the first 3 were asked for"):
        prepare(WITH_GOLD, source, tmp_path / "more.jsonl", first=3)


def test_a_benchmarks_own_problems_are_left_out(write_jsonl, tmp_path):
    """Word by word: case, spacing, dollars and punctuation do not count; another number does."""
    texts = ["What is $1+1$?", "what is 1 + 1", "What is $1+2$?"]
    rows = [{"id": str(place), "problem": text, "answer": "2"} for place, text in enumerate(texts)]
    held_out = ["What is $1+1$?"]
    made = prepare(WITH_GOLD, str(write_jsonl("own.jsonl", rows)), tmp_path / "t.jsonl", held_out=held_out)
    assert [json.loads(line)["problem"] for line in made.prompts.read_text().splitlines()] == ["What is $1+2$?"]
    assert (made.count, made.dropped_held_out, made.dropped_duplicates) == (1, 2, 0)
    assert made.digest == set_digest(["What is $1+2$?"])
