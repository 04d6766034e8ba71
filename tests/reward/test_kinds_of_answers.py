"""A kind of answer that reads a column: it reaches the scorer with the request, or by the prompt."""

import pytest

from restrain_openrlhf.answers import KINDS, canonical_key, register
from restrain_openrlhf.errors import DataError, ReferencePassError
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.prompt_rows import PromptRows
from restrain_openrlhf.scoring import GroupScorer, score_whole_group
from restrain_openrlhf.scoring.wire import GroupReply, GroupRequest
from tests.answers.test_own_kind import Signed
from tests.reference.made import write_reference

RESPONSES = [{"text": text, "finished": True} for text in ("so A", "so a", "so b", "so")]


@pytest.fixture(autouse=True)
def signed():
    yield register(Signed)
    del KINDS["signed"]


def scorer(rows=None, kind=None, reference=None):
    return GroupScorer(build(parse_settings({"name": "ttrl"})), reference, kind or Signed(), rows or PromptRows())


def score(prompt="Q", row=None, **given):
    return score_whole_group(scorer(**given), GroupRequest(prompt=prompt, responses=RESPONSES, row=row))


def test_the_row_comes_with_the_group():
    found = score(row={"problem": "Q", "sign": "-"})
    assert found.answers == ("-A", "-a", "-b", "-so")
    assert (found.votes.counts, found.keys, found.majority_key) == ((2, 1, 1), ("-a", "-b", "-so"), "-a")
    assert GroupReply.of(found).score().keys == found.keys


@pytest.fixture
def rows(write_jsonl):
    problems = [
        {"problem": "What?", "sign": "-"},
        {"problem": "What? And why?", "sign": "+"},
        {"problem": "Who", "sign": "*"},
    ]
    return PromptRows.of(write_jsonl("rows.jsonl", problems), Signed())


@pytest.mark.parametrize(
    ("prompt", "sign"),
    [("User: What? And why? Assistant:", "+"), ("What?", "-"), ("<user>What? And who</user>", "-"), ("Who is it", "*")],
)
def test_the_row_is_found_by_the_longest_problem_that_the_prompt_holds(rows, prompt, sign):
    assert score(prompt, rows=rows).answers[0] == f"{sign}A"


def test_a_prompt_of_another_file_is_refused(rows):
    with pytest.raises(DataError, match=r"rows\.jsonl: none of its 3 problems is in the prompt 'When\?'"):
        score("When?", rows=rows)


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"problem": "What?", "sign": "+"}, "is there twice"),
        ({"problem": " "}, "has no text"),
        ({"sign": "-"}, "has no text"),
    ],
)
def test_a_file_that_does_not_say_which_row_is_meant_is_refused(write_jsonl, second, said):
    with pytest.raises(DataError, match=f"line 2: .*{said}"):
        PromptRows.of(write_jsonl("rows.jsonl", [{"problem": "What?", "sign": "-"}, second]), Signed())


def test_without_rows_the_prompt_is_all_that_is_known():
    assert score("Q").answers == ("A", "a", "b", "so")


def test_a_reference_of_another_kind_is_refused(tmp_path):
    reference = load_reference(write_reference(tmp_path / "ref.jsonl", {"Q": ["1", "1"]}))
    with pytest.raises(ReferencePassError, match="answers of the kind 'math 4', and this run reads 'signed 3'"):
        scorer(reference=reference)


def test_keys_are_those_of_the_labels_where_right_answers_are_one():
    """50% and 0.5 are two votes and both right: a method that reads gold has one label for them, and two with 7."""
    gold = GroupScorer(build(parse_settings({"name": "grpo_gold"})))
    found = gold.score("Q", ["7", r"50\%", "0.5", "7", "7"], gold="0.5")
    assert found.votes.classes == (0, 1, 1, 0, 0)
    assert found.keys == (canonical_key("7"), canonical_key(r"50\%"))
    assert found.majority_key == canonical_key("7")
    assert gold.score("Q", [None, None], gold="0.5").keys == ()
