"""No way to a vote sees gold: by a kind that writes down every row it is given, and by the shipped kinds."""

import asyncio
import json
from dataclasses import asdict
from types import SimpleNamespace
from typing import ClassVar, Literal

import httpx
import pytest

from restrain_openrlhf.answers import KINDS, AnswerKind, parse_kind, register
from restrain_openrlhf.commands.premise.diagnosis import diagnose
from restrain_openrlhf.commands.premise.frozen import from_rollouts
from restrain_openrlhf.config.checks import CHECKS
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.data.problems import Problem
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.evaluation import result
from restrain_openrlhf.evaluation.grade import ResponseRow
from restrain_openrlhf.hook.rollout import training_data
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.reference.artifact import ReferenceRow
from restrain_openrlhf.reference.offline_engine import Rollout
from restrain_openrlhf.reference.prompts import PromptSource, load_prompts
from restrain_openrlhf.scoring.library import score
from restrain_openrlhf.scoring.scorer import GroupScorer, score_whole_group
from restrain_openrlhf.scoring.wire import GroupRequest, GroupResponse
from test_time.adaptation import Adaptation, make_plan
from test_time.outcome import Prediction, compare, graded_rows
from test_time.problems import Source, keep_problems, load_problems
from tests.command_line import restrain

QUESTION = "Which city was Eboracum?"
SAID = ["London", "York", "York", "Leeds"]
# Whatever a data set calls its gold: `truth` is what data.label_key names here.
ROW = {
    "problem": QUESTION,
    "hint": "in the north",
    "answer": "York",
    "aliases": ["York UA"],
    **dict.fromkeys(("label", "truth", "gold", "solution", "test", "secret"), "York"),
}
TTRL = parse_settings({"name": "ttrl"})


class Witness(AnswerKind):
    """The last word; `seen` are the rows that votes got, `graded` those of the comparison with gold."""

    version: ClassVar[str] = "1"
    reads: ClassVar[str] = "The last word is the answer."
    columns: ClassVar[frozenset[str]] = frozenset({"hint"})
    gold_columns: ClassVar[frozenset[str]] = frozenset({"aliases"})
    seen: ClassVar[list[dict]] = []
    graded: ClassVar[list[dict]] = []

    name: Literal["witness"] = "witness"

    def extract(self, response, row):
        self.seen.append(dict(row))
        return response.split()[-1] if response.split() else None

    def key(self, answer, row):
        self.seen.append(dict(row))
        return answer

    def classes(self, answers, row):
        self.seen.append(dict(row))
        return super().classes(answers, row)

    def is_right(self, answer, gold, row):
        self.graded.append(dict(row))
        return super().is_right(answer, gold, row) or answer in row.get("aliases", ())


@pytest.fixture(autouse=True)
def kind():
    Witness.seen.clear()
    Witness.graded.clear()
    yield register(Witness)()
    del KINDS["witness"]


@pytest.fixture
def rollouts(write_jsonl):
    return write_jsonl("rollouts.jsonl", [{"id": "1", **ROW, "responses": SAID}])


def blind():
    """Whether every row that votes got has the hint; fails for any column of gold's."""
    assert Witness.seen
    assert all(row.keys() <= {"problem", "hint"} for row in Witness.seen), Witness.seen
    assert "York" not in json.dumps(Witness.seen)
    return all("hint" in row for row in Witness.seen)


def responses():
    return tuple(GroupResponse(text=text, finished=True) for text in SAID)


def test_the_score_command(rollouts, tmp_path):
    restrain("score", rollouts, "--method", "ttrl", "--answers", "witness", "--out", tmp_path / "s.jsonl")
    assert blind()


def test_the_library(kind):
    score(SAID, QUESTION, method="ttrl", answers=kind, gold="York", columns=ROW)
    assert blind()


@pytest.mark.parametrize("name", ["ttrl", "restrain"])
def test_in_process(kind, name):
    """The rollout actor scores a request, whose row is whatever the trainer sent."""
    settings = {"name": name, **({"prompt_weight": 1.0} if name == "restrain" else {})}
    scorer = GroupScorer(build(parse_settings(settings)), None, kind)
    score_whole_group(scorer, GroupRequest(prompt=QUESTION, responses=responses(), gold="York", row=ROW))
    assert blind()
    assert not Witness.graded


def test_a_method_that_reads_gold_has_it_for_grading_alone(kind):
    scorer = GroupScorer(build(parse_settings({"name": "grpo_gold"})), None, kind)
    score_whole_group(scorer, GroupRequest(prompt=QUESTION, responses=responses(), gold="York", row=ROW))
    assert blind()
    assert all(row["aliases"] == ["York UA"] for row in Witness.graded)


def test_the_service(write_jsonl):
    pytest.importorskip("uvicorn", reason="needs the web stack: pip install restrain-openrlhf[service]")
    from restrain_openrlhf.scoring.service.server import Service, application
    from restrain_openrlhf.scoring.service.service_config import ServiceConfig

    block = {"group_size": len(SAID), "end_of_text": "<end>"}
    rows = write_jsonl("rows.jsonl", [ROW])
    config = {"method": {"name": "ttrl"}, "answers": {"name": "witness"}, "answer_rows": rows, "service": block}
    app = application(Service(ServiceConfig.model_validate(config), None))
    one = {"prompts": [QUESTION], "labels": [""]}
    bodies = [{**one, "query": [f"{QUESTION} {text}<end>"]} for text in SAID]

    async def ask():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client:
            return await asyncio.gather(*(client.post("/get_reward", json=body) for body in bodies))

    assert {reply.status_code for reply in asyncio.run(ask())} == {200}
    assert blind()


def test_training_with_a_label_key_of_ones_own(monkeypatch, kind):
    config = HookConfig.model_construct(answers=kind, method=TTRL)
    monkeypatch.setattr(training_data, "config_here", lambda: config)
    host = lambda data, *_: (data["problem"], data["truth"])  # noqa: E731
    _, label = training_data.preprocess_data(host, None, (ROW, None, "problem", "truth"), {})
    kind.grade("so York", label.label, label.row)
    assert blind()
    assert Witness.graded == [{name: ROW[name] for name in ("problem", "hint", "aliases")}]


def test_the_offline_pass(write_jsonl, kind):
    (prompt,) = load_prompts(PromptSource(str(write_jsonl("p.jsonl", [ROW])), "problem"), kind=kind)
    vote = ReferenceRow.of(kind, prompt, [Rollout(text, 3, False) for text in SAID])
    assert blind()
    assert "York" not in json.dumps(vote.row)


def test_premise(rollouts, kind):
    found = diagnose(from_rollouts(rollouts, kind=kind), TTRL)
    assert found.gold is not None
    assert blind()
    # Once for the votes, and once by the method that learns from gold, however many methods are compared.
    assert len(Witness.graded) == 2 * len(set(SAID))


def test_evaluation(kind):
    problem = Problem(id="1", problem=QUESTION, answer="York", row=ROW)
    row = ResponseRow(id="1", problem=QUESTION, prompt=QUESTION, responses=SAID, tokens=[1] * 4, truncated=[False] * 4)
    assert result._graded(row, problem, kind).correct == (False, True, True, False)
    assert blind()
    assert all(row["aliases"] for row in Witness.graded)


def test_adapting_to_a_test_set(write_jsonl, tmp_path, kind):
    problems = load_problems(Source(str(write_jsonl("set.jsonl", [ROW]))), kind)
    keep_problems(tmp_path / "kept.jsonl", problems)
    assert problems[0].row == {"hint": "in the north"}
    assert "York" not in (tmp_path / "kept.jsonl").read_text()


@pytest.mark.parametrize("column", ["answer", "label", "solution", "aliases", "test_list"])
def test_no_kind_makes_votes_of_a_column_of_gold(column):
    class Peeking(Witness):
        columns: ClassVar[frozenset[str]] = frozenset({column})
        name: Literal["peeking"] = "peeking"

    register(Peeking)
    try:
        with pytest.raises(ConfigError, match=f"'peeking' would read the column '{column}', which belongs to gold"):
            parse_kind({"name": "peeking"})
    finally:
        del KINDS["peeking"]


@pytest.mark.parametrize(("name", "refused"), [("hint", True), ("truth", False), ("problem", False)])
def test_the_label_key_is_no_column_of_votes(kind, name, refused):
    config = HookConfig.model_construct(answers=kind, method=TTRL)
    flags = {"data.label_key": name}
    check = next(check for check in CHECKS if "a column that the kind" in str(check.__doc__))
    reason = check(flags, config, build(TTRL))
    assert (reason is not None) is refused
    assert not refused or "data.label_key is 'hint'" in reason


# Alone, "London" has two votes of five. If gold's spellings were one answer, York would have three.
CITIES = ["London", "London", "York", "Yorkish", "York UA"]
SPELLINGS = ["Yorkish", "York UA", "York"]
CLASSES = [0, 0, 1, 2, 3]
TEXT = parse_kind({"name": "text"})
SHIPPED = {
    "text": TEXT,
    "mixed": parse_kind({"name": "mixed", "default": "text"}),
    "judge": parse_kind({"name": "judge", "callable": "tests.answers.test_gold_reaches_no_vote:apart"}),
}
GOLD = [{}, {"answer": "York"}, {"answer": "York", "aliases": SPELLINGS}, {"answer": "London", "aliases": ["X"]}]


def apart(answers, _row):
    """A judge for whom no two answers are equal."""
    return list(range(len(answers)))


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("gold", GOLD, ids=["no-gold", "answer", "aliases", "other-gold"])
def test_no_class_and_no_key_of_a_shipped_kind_depends_on_gold(name, gold):
    shipped, row = SHIPPED[name], {"id": "1", "problem": QUESTION, **gold}
    assert shipped.classes([shipped.extract(text, row) for text in CITIES], row) == CLASSES
    assert [shipped.key(text, row) for text in CITIES] == [shipped.key(text, {}) for text in CITIES]


OWN_ROW = {"id": "s1", "problem": QUESTION, "answer": "York", "aliases": SPELLINGS}


def test_an_own_set_is_trained_on_without_gold_and_graded_with_it(write_jsonl, tmp_path):
    path = write_jsonl("own.jsonl", [OWN_ROW])
    job = Adaptation("m", Source(str(path)), tmp_path / "out", answers=TEXT, gold=path)
    plan = make_plan(job, load_problems(job.problems, job.kind))
    keep_problems(tmp_path / "prompts.jsonl", plan.problems)
    assert "York" not in (tmp_path / "prompts.jsonl").read_text()
    (prompt,) = load_prompts(PromptSource(str(tmp_path / "prompts.jsonl"), "problem"), kind=plan.config.answers)
    vote = ReferenceRow.of(plan.config.answers, prompt, [Rollout(text, 3, False) for text in CITIES])
    assert list(vote.classes) == CLASSES
    assert "York UA" not in json.dumps(vote.row)
    voted = Prediction(
        id=str(prompt.id), answer="York UA", vote_share=1, runner_up=None, runner_up_share=0, before="London",
        before_share=1, changed=True,
    )  # fmt: skip
    found = compare([voted], {voted.id: "York"}, 0.0, plan.config.answers, graded_rows(job, plan))
    assert (found.right_before, found.right) == (0, 1)


@pytest.mark.parametrize("name", SHIPPED)
def test_training_rows_have_gold_only_for_a_method_that_reads_it(monkeypatch, name):
    kind = SHIPPED[name]
    monkeypatch.setattr(training_data, "config_here", lambda: HookConfig.model_construct(answers=kind))
    row = {"problem": QUESTION, "answer": "York", "aliases": SPELLINGS}
    host = lambda data, *_: (data["problem"], data["answer"])  # noqa: E731
    prompt, label = training_data.preprocess_data(host, None, (row, None, "problem", "answer"), {})
    assert kind.grade("York UA", label.label, label.row).correct
    for reads_gold in (False, True):
        dataset = SimpleNamespace(prompts=[prompt], labels=[label])
        training_data.mark_training(dataset, reads_gold, kind)
        assert ("York" in json.dumps(asdict(dataset.labels[0]))) is reads_gold
