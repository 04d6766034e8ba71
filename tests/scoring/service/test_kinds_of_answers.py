"""A kind of answer that reads a column: it reaches the scorer with the request, or by the prompt, by every way."""

import json

import pytest

from restrain_openrlhf.answers import KINDS, canonical_key, parse_kind, register
from restrain_openrlhf.commands.premise.frozen import from_rollouts
from restrain_openrlhf.errors import DataError, ReferencePassError
from restrain_openrlhf.evaluation.prompt_gold import gold_for
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.reference import ReferenceRow, load_reference
from restrain_openrlhf.reference.offline_engine import Rollout
from restrain_openrlhf.reference.prompts import PromptRows, PromptSource, load_prompts
from restrain_openrlhf.scoring import GroupScorer, score_whole_group
from restrain_openrlhf.scoring.wire import GroupReply, GroupRequest
from tests.answers.test_own_kind import Signed
from tests.command_line import restrain
from tests.reference.made import write_reference
from tests.scoring.service.clients import ask
from tests.scoring.service.conftest import END

RESPONSES = [{"text": text, "finished": True} for text in ("so A", "so a", "so b", "so")]


@pytest.fixture(autouse=True)
def signed():
    yield register(Signed)
    del KINDS.classes["signed"]


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
    with pytest.raises(DataError, match=r"rows\.jsonl: the prompt 'When\?' contains none of its 3 problems"):
        score("When?", rows=rows)


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"problem": "What?", "sign": "+"}, "appears twice"),
        ({"problem": " "}, "its prompt is empty"),
        ({"sign": "-"}, "has no known column of prompts"),
    ],
)
def test_a_file_that_does_not_say_which_row_is_meant_is_refused(write_jsonl, second, said):
    with pytest.raises(DataError, match=f"line 2: .*{said}"):
        PromptRows.of(write_jsonl("rows.jsonl", [{"problem": "What?", "sign": "-"}, second]), Signed())


def test_without_rows_the_prompt_is_all_that_is_known():
    assert score("Q").answers == ("A", "a", "b", "so")


def test_a_reference_of_another_kind_is_refused(tmp_path):
    reference = load_reference(write_reference(tmp_path / "ref.jsonl", {"Q": ["1", "1"]}))
    with pytest.raises(ReferencePassError, match="answers of the kind 'math 6', but this run reads 'signed 3'"):
        scorer(reference=reference)


def test_keys_are_those_of_the_labels_where_right_answers_are_one():
    """50% and 0.5 are two votes and both right: a method that reads gold has one label for them, and two with 7."""
    gold = GroupScorer(build(parse_settings({"name": "grpo_gold"})))
    found = gold.score("Q", ["7", r"50\%", "0.5", "7", "7"], gold="0.5")
    assert found.votes.classes == (0, 1, 1, 0, 0)
    assert found.keys == (canonical_key("7"), canonical_key("0.5"))
    assert found.majority_key == canonical_key("7")
    assert gold.score("Q", [None, None], gold="0.5").keys == ()


CHOICE = parse_kind({"name": "choice"})
OPTIONS = ["Ada", "Bea", "Cy"]
ASKED = {"id": "1", "problem": "Who is it, Ada, Bea or Cy?", "options": OPTIONS}
# Two ways to say one option, another, and what is none: without the row these are C, no answer, B and K.
SAID = ["The answer is (C)", "Cy", "(B)", "The answer is (K)"]
READ = ("Cy", "Cy", "Bea", None)


def as_offline_pass(file, _tmp_path):
    (prompt,) = load_prompts(PromptSource(str(file), "problem"), kind=CHOICE)
    return ReferenceRow.of(CHOICE, prompt, [Rollout(text, 1, truncated=False) for text in SAID]).answers


def as_premise(file, _tmp_path):
    return next(iter(from_rollouts(file, kind=CHOICE).groups)).row.answers


def as_command(file, tmp_path):
    done = restrain("score", file, "--method", "ttrl", "--answers", "choice", "--out", tmp_path / "out.jsonl")
    assert done.returncode == 0, done.stderr
    return json.loads((tmp_path / "out.jsonl").read_text())["answers"]


def as_mixed_file(file, _tmp_path):
    kind = parse_kind({"name": "mixed"})
    (prompt,) = load_prompts(PromptSource(str(file), "problem"), kind=kind)
    return [kind.extract(text, prompt.row) for text in SAID]


def as_the_agent_alone(file, _tmp_path):
    rows = PromptRows.of(file, CHOICE)
    group = GroupRequest(
        prompt=f"User: {ASKED['problem']}", responses=[{"text": text, "finished": True} for text in SAID]
    )
    return score_whole_group(GroupScorer(build(parse_settings({"name": "ttrl"})), None, CHOICE, rows), group).answers


@pytest.mark.parametrize("way", [as_offline_pass, as_premise, as_command, as_mixed_file, as_the_agent_alone])
def test_the_options_are_there_by_every_way(way, write_jsonl, tmp_path):
    file = write_jsonl("rows.jsonl", [{**ASKED, "answers": "choice", "answer": "2", "responses": SAID}])
    assert tuple(way(file, tmp_path)) == READ


@pytest.mark.parametrize(("answer", "right"), [("Cy", True), ("Bea", False), (None, False)])
def test_kept_rollouts_are_graded_with_the_options_of_the_training_file(write_jsonl, answer, right):
    """As `view` and `analyze` do: gold is a letter, and answers are options."""
    file = write_jsonl("rows.jsonl", [ASKED])
    gold = write_jsonl("gold.jsonl", [{"problem": ASKED["problem"], "answer": "C"}])
    flags = {"data.prompt_dataset": str(file), "data.input_key": "problem"}
    prompt = f"User: {ASKED['problem']}\nAssistant:"
    assert gold_for([prompt], gold, flags, CHOICE).right(prompt, answer) is right


def test_options_are_there_over_http(services, write_jsonl):
    """Whole groups with their row, by the prompt without it, and OpenRLHF's single rollouts by the prompt."""
    pytest.importorskip("fastapi", reason="needs restrain-openrlhf[serve]")
    others = {"answers": {"name": "choice"}, "answer_rows": str(write_jsonl("rows.jsonl", [ASKED]))}
    service = services.start(others=others)
    prompt, responses = f"User: {ASKED['problem']}", [{"text": text, "finished": True} for text in SAID]
    for row in ({"problem": ASKED["problem"], "options": OPTIONS}, None):
        body = {"groups": [{"prompt": prompt, "responses": responses, "row": row}]}
        (scored,) = service.http.post("/v1/score", json=body).json()["groups"]
        assert tuple(scored["answers"]) == READ
    bodies = [{"query": [prompt + text + END], "prompts": [prompt], "labels": [""]} for text in SAID]
    first, second, third, none = (reply.json()["rewards"] for reply in ask(service.reward_url, bodies))
    assert first == second > none == third
