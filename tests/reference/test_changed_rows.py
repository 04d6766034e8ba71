"""A row whose other columns were changed after the pass joins nowhere; gold, and another notation, change nothing."""

import hashlib
import json
import sqlite3
from contextlib import closing
from functools import partial

import pytest

from restrain_openrlhf.answers import parse_kind
from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.errors import ReferencePassError
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.reference import ReferenceRow, load_reference
from restrain_openrlhf.reference.offline_engine import Rollout
from restrain_openrlhf.reference.prompts import PromptSource, load_prompts
from restrain_openrlhf.reference.sampling_pass import SamplingPass
from restrain_openrlhf.scoring import GroupScorer
from restrain_openrlhf.scoring.library import score
from tests.command_line import refused, restrain
from tests.reference.toy import look_up, provenance

NUMBER = {"name": "number"}
TABLE = "CREATE TABLE t (a); INSERT INTO t VALUES"
KM, M = {"unit": "km"}, {"unit": "m"}
# What a row had when it was sampled, what it has now, and what is said; None where it is the same row.
CHANGES = {
    "unit": (NUMBER, KM, M, "its column 'unit' is 'km' there and 'm' here"),
    "a unit now": (NUMBER, {}, M, "its column 'unit' is None there and 'm' here"),
    "options": (
        {"name": "choice"},
        {"options": ["Ada", "Bea", "Cy"]},
        {"options": ["Ada", "Bea", "Di"]},
        "its column 'options' is ['Ada', 'Bea', 'Cy'] there and ['Ada', 'Bea', 'Di'] here",
    ),
    "rows of a database": (
        {"name": "sql"},
        {"schema": f"{TABLE} (1), (2)"},
        {"schema": f"{TABLE} (1), (3)"},
        "'schema' is …INTO t VALUES (1), (2)' there and …INTO t VALUES (1), (3)' here",
    ),
    "examples": ({"name": "code"}, {"examples": ["f(1)"]}, {"examples": ["f(2)"]}, "'examples'"),
    "gold comes": ({"name": "text"}, {}, {"answer": "York", "aliases": ["Eboracum"], "label": "x"}, None),
    "not read": (NUMBER, {**KM, "source": "a"}, {**KM, "source": "b"}, None),
    "a cell of a CSV file": ({"name": "choice"}, {"options": ["Ada", "Bea"]}, {"options": '["Ada", "Bea"]'}, None),
    "a key that Arrow added": (
        {"name": "json"},
        {"schema": {"type": "object"}},
        {"schema": {"type": "object", "items": None}},
        None,
    ),
}


class Engine:
    """Four answers to each prompt: as lengths, three are equal in metres, and two where the unit is km."""

    def rollouts(self, chunk):
        texts = ("5 km", "5000 m", "5000", "7")
        return [[Rollout(f"The answer is {text}.", 3, False) for text in texts] for _ in chunk]


def prompts_of(folder, kind, columns):
    path = folder / "prompts.jsonl"
    rows = [{"id": place, "problem": f"How far is {place}? Ada, Bea, Cy or Di?", **columns} for place in (1, 2)]
    path.write_text("".join(map(dump, rows)))
    return load_prompts(PromptSource(str(path), "problem"), kind=kind)


def pass_over(folder, kind, prompts):
    made = provenance(prompts, answers=kind.model_dump(mode="json"), extractor_version=kind.whole_version)
    return SamplingPass(prompts, made, folder / "ref.jsonl", ReferenceRow, partial(ReferenceRow.of, kind))


@pytest.fixture
def sampled(tmp_path):
    """The pass of two prompts with these columns."""

    def sampled(kind, columns):
        prompts = prompts_of(tmp_path, kind, columns)
        made = pass_over(tmp_path, kind, prompts)
        made.provenance.write(made.path)
        rows = [ReferenceRow.of_answers(prompt, ["a"] * 4, kind) for prompt in prompts]
        made.path.write_text("".join(dump(row.model_dump(mode="json")) for row in rows))
        return load_reference(made.path)

    return sampled


@pytest.fixture(autouse=True)
def databases(monkeypatch):
    """No query and no program is run: what the rows hold is not what these tests are about."""
    monkeypatch.setattr("restrain_openrlhf.answers.kinds.sql.Sql.key", lambda *_: "rows")
    monkeypatch.setattr("restrain_openrlhf.answers.kinds.code.Code.key", lambda *_: "outcomes")
    monkeypatch.setattr("restrain_openrlhf.answers.kinds.code.Code.classes", lambda _, given, __: [0] * len(given))


@pytest.mark.parametrize(("settings", "then", "now", "said"), CHANGES.values(), ids=CHANGES)
def test_a_changed_row_is_refused_where_training_begins_and_where_a_pass_goes_on(
    tmp_path, sampled, settings, then, now, said
):
    kind = parse_kind(settings)
    reference = sampled(kind, then)
    prompts = prompts_of(tmp_path, kind, now)
    continued = pass_over(tmp_path, kind, prompts)
    if said is None:
        look_up(reference, prompts)
        continued.run(lambda: pytest.fail("a whole pass needs no engine"))
        return
    with pytest.raises(ReferencePassError) as training:
        look_up(reference, prompts)
    assert "made for another row of line 1 'How far is 1?" in str(training.value)
    with pytest.raises(ReferencePassError) as resumed:
        continued.run(Engine)
    assert "has rollouts of another row of line 1 'How far is 1?" in str(resumed.value)
    for told in (str(training.value), str(resumed.value)):
        assert said.removeprefix("its column ") in told


@pytest.mark.parametrize("column", ["database", "db_id"])
def test_a_database_with_another_content_under_the_same_path_is_another_row(tmp_path, sampled, column):
    """As hashlib's digest of the whole file says; a second copy of the same file changes nothing."""
    kind = parse_kind({"name": "sql", "databases": str(tmp_path)})
    file = tmp_path / "cars" / "cars.sqlite"
    row = {"db_id": "cars"} if column == "db_id" else {"database": "cars/cars.sqlite"}
    file.parent.mkdir()
    write_database(file, 1)
    reference = sampled(kind, row)
    then = hashlib.sha256(file.read_bytes()).hexdigest()
    file.write_bytes(file.read_bytes())
    look_up(reference, prompts_of(tmp_path, kind, row))
    write_database(file, 2)
    now = hashlib.sha256(file.read_bytes()).hexdigest()
    with pytest.raises(ReferencePassError, match=f"'database_digest' is '{then[:20]}.* there and '{now[:20]}.* here"):
        look_up(reference, prompts_of(tmp_path, kind, row))
    with pytest.raises(ReferencePassError, match="has rollouts of another row of line 1"):
        pass_over(tmp_path, kind, prompts_of(tmp_path, kind, row)).run(Engine)


def write_database(file, number):
    file.unlink(missing_ok=True)
    with closing(sqlite3.connect(file)) as database:
        database.executescript(f"CREATE TABLE t (a); INSERT INTO t VALUES ({number})")


@pytest.mark.parametrize("method", ["restrain", "srt_offline"])
@pytest.mark.parametrize("now", [M, {}], ids=["metres", "none given"])
def test_no_group_is_scored_by_the_votes_on_another_row(sampled, method, now):
    """Of what the Engine says, u_x is exp(-1/2) = .607 for 2 of 4 in km, and exp(-1/8) = .882 for 3 of 4 in metres."""
    kind = parse_kind(NUMBER)
    scorer = GroupScorer(build(parse_settings({"name": method})), sampled(kind, KM), kind)
    prompt = "How far is 1? Ada, Bea, Cy or Di?"
    assert len(scorer.score(prompt, ["5"] * 4, row={"problem": "stated", **KM}).rewards) == 4
    with pytest.raises(ReferencePassError, match="made for another row of the prompt 'How far is 1"):
        scorer.score(prompt, ["5"] * 4, row={"problem": "stated", **now})
    with pytest.raises(ReferencePassError, match="'unit' is 'km' there and None here"):
        scorer.check(prompt)


def test_the_library_and_the_command_refuse_it_too(tmp_path, write_jsonl):
    kind = parse_kind(NUMBER)
    made = pass_over(tmp_path, kind, prompts_of(tmp_path, kind, KM))
    made.run(Engine)
    assert [row.majority_share for row in load_reference(made.path).rows] == [0.5, 0.5]
    texts, prompt = ["The answer is 5."] * 4, "How far is 1? Ada, Bea, Cy or Di?"
    votes = partial(score, texts, prompt, method="restrain", answers="number", reference=made.path)
    assert votes(columns=KM)[0].prompt_weight == pytest.approx(0.6065, abs=1e-4)
    with pytest.raises(ReferencePassError, match="'unit' is 'km' there and 'm' here"):
        votes(columns=M)
    group = {"id": 1, "problem": prompt, "responses": texts, **M}
    words = ("--reference", made.path, "--answers", "number", "--out", tmp_path / "scores.jsonl")
    said = refused("score", write_jsonl("rollouts.jsonl", [group]), *words)
    assert "line 1:" in said
    assert "its column 'unit' is 'km' there and 'm' here" in said
    assert not (tmp_path / "scores.jsonl").exists()


@pytest.mark.parametrize("key", ["problem", "id"])
def test_gold_of_another_row_is_refused_and_gold_that_says_nothing_of_it_is_not(tmp_path, write_jsonl, key):
    kind = parse_kind(NUMBER)
    made = pass_over(tmp_path, kind, prompts_of(tmp_path, kind, KM))
    made.run(Engine)
    named = {"problem": "How far is 1? Ada, Bea, Cy or Di?"} if key == "problem" else {"id": "1"}

    def gold(**columns):
        return write_jsonl("gold.jsonl", [{**named, "answer": "5", **columns}])

    said = refused("premise", "--reference", made.path, "--gold", gold(unit="m"))
    assert "has the answer to another row of the problem 'How far is 1?" in said
    assert "'unit' is 'm' there and 'km' here" in said.replace("\n", " ")
    for known in ({}, KM, {**KM, "source": "x"}):
        done = restrain("premise", "--reference", made.path, "--gold", gold(**known), "--json")
        assert json.loads(done.stdout)["gold"]["pass_at_1"] == 0.5
