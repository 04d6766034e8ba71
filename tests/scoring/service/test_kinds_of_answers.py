"""A kind of answer that reads a column: it reaches the scorer with the request, or by the prompt, by every way."""

import pytest

from restrain_openrlhf.answers import KINDS, canonical_key, register
from restrain_openrlhf.errors import ReferencePassError
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.prompts import PromptRows
from restrain_openrlhf.scoring import GroupScorer, score_whole_group
from restrain_openrlhf.scoring.wire import GroupRequest
from tests.answers.test_own_kind import Signed
from tests.reference.made import write_reference
from tests.scoring.service.clients import ask
from tests.scoring.service.conftest import END

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


ASKS = {"role": "user", "content": "Go on."}


@pytest.fixture
def rows(write_jsonl):
    problems = [
        {"problem": "What?", "sign": "-"},
        {"problem": "What? And why?", "sign": "+"},
        {"problem": "Who", "sign": "*"},
        *(
            {"problem": [*({"role": "system", "content": text} for text in before), ASKS], "sign": sign}
            for *before, sign in (("Hi", "What is it?", "|"), ("Hi", "<"), ("Yo", ">"))
        ),
    ]
    return PromptRows.of(write_jsonl("rows.jsonl", problems), Signed())


@pytest.mark.parametrize(
    ("prompt", "sign"),
    [
        ("User: What? And why? Assistant:", "+"),
        ("What?", "-"),
        ("<user>What? And who</user>", "-"),
        ("Who is it", "*"),
        ("Hi. Go on.", "<"),
        ("Hi. What is it? Go on.", "|"),
        ("Yo. Go on.", ">"),
    ],
)
def test_the_row_is_found_by_the_longest_problem_that_the_prompt_holds(rows, prompt, sign):
    assert score(prompt, rows=rows).answers[0] == f"{sign}A"
    assert rows.find("Yo. Go on.")["problem"] == "system: Yo\n\nuser: Go on.", "the same text as in a pass"


def test_a_reference_of_another_kind_is_refused(tmp_path):
    reference = load_reference(write_reference(tmp_path / "ref.jsonl", {"Q": ["1", "1"]}))
    with pytest.raises(ReferencePassError, match="answers of the kind 'math 7', but this run reads 'signed 3'"):
        scorer(reference=reference)


def test_keys_are_those_of_the_labels_where_right_answers_are_one():
    """50% and 0.5 are two votes and both right: a method that reads gold has one label for them, and two with 7."""
    gold = GroupScorer(build(parse_settings({"name": "grpo_gold"})))
    found = gold.score("Q", ["7", r"50\%", "0.5", "7", "7"], gold="0.5")
    assert found.votes.classes == (0, 1, 1, 0, 0)
    assert found.keys == (canonical_key("7"), canonical_key("0.5"))
    assert found.majority_key == canonical_key("7")
    assert gold.score("Q", [None, None], gold="0.5").keys == ()


OPTIONS = ["Ada", "Bea", "Cy"]
ASKED = {"id": "1", "problem": "Who is it, Ada, Bea or Cy?", "options": OPTIONS}
# Two ways to say one option, another, and what is none: without the row these are C, no answer, B and K.
SAID = ["The answer is (C)", "Cy", "(B)", "The answer is (K)"]


def test_options_are_there_over_http(services, write_jsonl):
    """OpenRLHF's single rollouts find their row by the prompt."""
    others = {"answers": {"name": "choice"}, "answer_rows": str(write_jsonl("rows.jsonl", [ASKED]))}
    service = services.start(others=others)
    prompt = f"User: {ASKED['problem']}"
    bodies = [{"query": [prompt + text + END], "prompts": [prompt], "labels": [""]} for text in SAID]
    first, second, third, none = (reply.json()["rewards"] for reply in ask(service.reward_url, bodies))
    assert first == second > none == third
