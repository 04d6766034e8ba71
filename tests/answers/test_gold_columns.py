"""Columns that belong to gold: no way to a vote sees them, and whatever grades does."""

import json
from dataclasses import asdict
from types import SimpleNamespace

import pytest

from restrain_openrlhf.answers import AnswerKind, parse_kind
from restrain_openrlhf.commands.premise.frozen import from_rollouts
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.data.benchmarks import load_benchmark
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.evaluation import result
from restrain_openrlhf.evaluation.grade import ResponseRow
from restrain_openrlhf.evaluation.prompt_gold import gold_for
from restrain_openrlhf.hook.rollout import training_data
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.reference.artifact import ReferenceRow
from restrain_openrlhf.reference.offline_engine import Rollout
from restrain_openrlhf.reference.prompt_rows import PromptRows
from restrain_openrlhf.reference.prompts import PromptSource, load_prompts
from restrain_openrlhf.scoring.library import group_of, scorer_of
from restrain_openrlhf.scoring.scorer import GroupScorer, score_whole_group
from restrain_openrlhf.scoring.wire import GroupRequest, GroupResponse
from test_time.accuracy import graded_problems
from test_time.adaptation import Adaptation, make_plan
from test_time.outcome import Prediction, compare
from test_time.problems import Source, keep_problems, load_problems
from tests.command_line import restrain

QUESTION = "Which city was Eboracum?"
# Alone, "London" has two votes of five. If gold's spellings were one answer, York would have three.
SAID = ["London", "London", "York", "Yorkish", "York UA"]
SPELLINGS = ["Yorkish", "York UA", "York"]
CLASSES = [0, 0, 1, 2, 3]
TEXT = parse_kind({"name": "text"})
KINDS = {
    "text": TEXT,
    "mixed": parse_kind({"name": "mixed", "default": "text"}),
    "judge": parse_kind({"name": "judge", "callable": "tests.answers.test_gold_columns:apart"}),
}
METHODS = ("restrain", "ttrl")
GOLD = [{}, {"answer": "York"}, {"answer": "York", "aliases": SPELLINGS}, {"answer": "London", "aliases": ["X"]}]


def apart(answers, _row):
    """A judge for whom no two answers are equal."""
    return list(range(len(answers)))


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


@pytest.fixture(params=GOLD, ids=["no-gold", "answer", "aliases", "other-gold"])
def row(request):
    return {"id": "1", "problem": QUESTION, **request.param}


def classes_of(kind: AnswerKind, known):
    return kind.classes([kind.extract(text, known) for text in SAID], known)


def test_no_class_and_no_key_depends_on_gold(kind, row):
    assert classes_of(kind, row) == CLASSES
    assert [kind.key(text, row) for text in SAID] == [kind.key(text, {}) for text in SAID]


def test_gold_is_in_no_row_of_a_vote(kind, row):
    assert kind.row(QUESTION, row) == {"problem": QUESTION}


@pytest.mark.parametrize("given", [GOLD[1], GOLD[2]], ids=["answer", "aliases"])
def test_an_own_test_set_is_trained_on_without_gold(write_jsonl, tmp_path, kind, given):
    path = write_jsonl("p.jsonl", [{"id": "1", "problem": QUESTION, **given}])
    keep_problems(tmp_path / "prompts.jsonl", load_problems(Source(str(path)), kind))
    assert (tmp_path / "prompts.jsonl").read_text() == json.dumps({"id": "1", "problem": QUESTION}) + "\n"


OWN_ROW = {"id": "s1", "problem": QUESTION, "answer": "York", "aliases": SPELLINGS}


def test_an_own_set_is_trained_on_without_gold_and_graded_with_it(write_jsonl, tmp_path):
    path = write_jsonl("own.jsonl", [OWN_ROW])
    job = Adaptation("m", Source(str(path)), tmp_path / "out", answers=TEXT, gold=path)
    plan = make_plan(job, load_problems(job.problems, job.kind))
    keep_problems(tmp_path / "prompts.jsonl", plan.problems)
    assert "York" not in (tmp_path / "prompts.jsonl").read_text()
    (prompt,) = load_prompts(PromptSource(str(tmp_path / "prompts.jsonl"), "problem"), kind=plan.config.answers)
    vote = ReferenceRow.of(plan.config.answers, prompt, [Rollout(text, 3, False) for text in SAID])
    assert list(vote.classes) == CLASSES
    assert "York UA" not in json.dumps(vote.row)
    voted = Prediction(
        id=str(prompt.id), answer="York UA", vote_share=1, runner_up=None, runner_up_share=0, before="London",
        before_share=1, changed=True,
    )  # fmt: skip
    found = compare([voted], {voted.id: "York"}, 0.0, plan.config.answers, graded_problems(job, plan))
    assert (found.right_before, found.right) == (0, 1)


def test_the_majority_of_an_evaluation_is_no_vote_of_gold(write_jsonl, tmp_path):
    loaded = load_benchmark(str(write_jsonl("own.jsonl", [OWN_ROW])), asked=TEXT)
    responses = ResponseRow(
        id="s1", problem=QUESTION, prompt=QUESTION, responses=SAID, tokens=[1] * 5, truncated=[False] * 5
    )
    grades = result._graded(responses, loaded.problems[0], loaded.kind)
    assert list(grades.classes) == CLASSES
    assert grades.correct == (False, False, True, True, True)


@pytest.mark.parametrize("method", METHODS)
def test_score_is_the_same_whatever_gold_is(write_jsonl, tmp_path, method, row):
    plain = {"id": "1", "problem": QUESTION, "responses": SAID}
    for name, each in (("plain", plain), ("gold", {**plain, **row})):
        made = write_jsonl(f"{name}.jsonl", [each])
        restrain("score", made, "--method", method, "--answers", "text", "--out", tmp_path / f"{name}.scores.jsonl")
    assert (tmp_path / "plain.scores.jsonl").read_bytes() == (tmp_path / "gold.scores.jsonl").read_bytes()


@pytest.mark.parametrize("method", METHODS)
def test_every_way_to_the_scorer_gives_one_score(write_jsonl, kind, method, row):
    """`/v1/score` with a row, and `/get_reward` with a file of rows, end in `score_whole_group`."""
    settings = parse_settings({"name": method, **({"prompt_weight": 1.0} if method == "restrain" else {})})
    responses = tuple(GroupResponse(text=text, finished=True) for text in SAID)
    rows = PromptRows.of(write_jsonl("rows.jsonl", [row]), kind)
    assert list(rows.rows.values()) == [{"problem": QUESTION}]
    bare = score_whole_group(
        GroupScorer(build(settings), None, kind), GroupRequest(prompt=QUESTION, responses=responses)
    )
    for scorer, own in (
        (GroupScorer(build(settings), None, kind), row),
        (GroupScorer(build(settings), None, kind, rows), None),
    ):
        found = score_whole_group(scorer, GroupRequest(prompt=QUESTION, responses=responses, gold="York", row=own))
        assert found.votes == bare.votes
        assert list(found.votes.classes) == CLASSES
        assert found.label_weights.tobytes() == bare.label_weights.tobytes()
        assert found.pair.positive.tobytes() == bare.pair.positive.tobytes()
        assert found.pair.negative.tobytes() == bare.pair.negative.tobytes()
        assert (found.keys, found.majority_key) == (bare.keys, bare.majority_key)


def test_training_rows_have_gold_only_for_a_method_that_reads_it(monkeypatch, kind):
    monkeypatch.setattr(training_data, "config_here", lambda: HookConfig.model_construct(answers=kind))
    row = {"problem": QUESTION, "answer": "York", "aliases": SPELLINGS}
    host = lambda data, *_: (data["problem"], data["answer"])  # noqa: E731
    prompt, label = training_data.preprocess_data(host, None, (row, None, "problem", "answer"), {})
    assert kind.grade("York UA", label.label, label.row).correct
    for reads_gold in (False, True):
        dataset = SimpleNamespace(prompts=[prompt], labels=[label])
        training_data.mark_training(dataset, reads_gold, kind)
        assert ("York" in json.dumps(asdict(dataset.labels[0]))) is reads_gold


def test_premise_votes_without_gold_and_grades_with_it(write_jsonl):
    rows = [{"id": "1", "problem": QUESTION, "responses": SAID, "answer": "York", "aliases": SPELLINGS}]
    (group,) = from_rollouts(write_jsonl("r.jsonl", rows), kind=TEXT).groups
    assert list(group.group.classes) == CLASSES
    assert group.grades.correct == (False, False, True, True, True)


@pytest.mark.parametrize("column", ["answer", "aliases"])
def test_a_judge_is_not_sent_gold(column):
    with pytest.raises(ConfigError, match=f"'{column}', which belongs to gold"):
        parse_kind({"name": "judge", "url": "http://j", "send": [column]})


@pytest.mark.parametrize(("name", "knows"), [("ttrl", False), ("restrain", False), ("grpo_gold", True)])
def test_the_library_gives_golds_columns_only_to_a_method_that_reads_gold(name, knows):
    settings = {"name": name, "prompt_weight": 1.0} if name == "restrain" else name
    columns = {"aliases": SPELLINGS}
    group = group_of(scorer_of(settings, "text"), QUESTION, SAID, [False] * 5, "York", columns)
    assert ("aliases" in (group.row or {})) == knows


@pytest.mark.parametrize("exact", [False, True])
def test_exact_comparison_with_gold_is_one_of_votes(write_jsonl, exact):
    rows = [{"problem": QUESTION, "answer": "York", "aliases": SPELLINGS}]
    prompts, gold = write_jsonl("prompts.jsonl", rows), write_jsonl("gold.jsonl", rows)
    flags = {"data.prompt_dataset": str(prompts), "data.input_key": "problem", "data.prompt_split": "train"}
    found = gold_for([QUESTION], gold, flags, TEXT, exact=exact)
    assert [("aliases" in row) for row in found.rows.values()] == [not exact]
    assert found.right(QUESTION, "York UA") is (not exact)
