"""`restrain label`: which prompts it chooses, worked by hand, the table it writes, and its labels among the prompts."""

import csv
import json

import pytest

from restrain_openrlhf.commands.premise.label import chance_of_another
from restrain_openrlhf.method.types import count_votes
from tests.command_line import refused, restrain
from tests.commands.premise.passes import counted, write_pass

# Of the shortcut "0", four prompts; a split vote; one that is unanimous; one in which no answer has two votes.
GROUPS = [
    *[counted({"0": 5, str(n): 3}) for n in (11, 12, 13, 14)],
    counted({"21": 4, "22": 4}),
    ["31"] * 8,
    [str(n) for n in range(41, 49)],
]


@pytest.mark.parametrize(
    ("classes", "chance"),
    [
        ([0, 0, 0, 1], (1 - 1 / 4) * 1 / 4),  # one label of one vote: a quarter is that nobody is right
        ([0, 0, 1, 1], 1 / 2),
        ([0, 0, None, None], 0.0),
        ([0, 0, 0, 0], 0.0),
        ([0, 1, 2, 3], 0.0),
    ],
)
def test_what_a_label_is_worth(classes, chance):
    assert chance_of_another(count_votes(classes)) == pytest.approx(chance)


@pytest.fixture
def config(tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    rows = [{"id": f"p{n}", "problem": f"problem {n}", "source": "x"} for n in range(len(GROUPS))]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = tmp_path / "mine.yaml"
    reference = write_pass(tmp_path / "ref.jsonl", GROUPS)
    path.write_text(
        f"extends: cpu/demo_addition\nrun_dir: {tmp_path}/run\nreference: {reference}\n"
        f"openrlhf: {{data.prompt_dataset: {prompts}, data.input_template: null, actor.model_name_or_path: m}}\n"
    )
    return path


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def fill(path, answers):
    rows = table(path)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows({**row, "answer": answers.get(row["id"], "")} for row in rows)


def test_half_are_the_best_and_the_rest_are_drawn_with_a_known_chance(config, tmp_path):
    """The split vote is worth 1/2; the shortcut's prompts 3/8 each, of which the second counts half and so on."""
    out = tmp_path / "labels.csv"
    assert restrain("label", config, "--count", 4, "--out", out).returncode == 0
    first, second, *rest = table(out)
    assert first["id"] == "p4"
    assert second["id"] in {"p0", "p1", "p2", "p3"}
    found = {"id": "p4", "problem": "problem 4", "votes": "4 of 8: 21; 4 of 8: 22", "inclusion": "1", "answer": ""}
    assert first == found
    assert [row["inclusion"] for row in (second, *rest)] == ["1", "0.4", "0.4"], "two of the five others"
    out.unlink()
    assert restrain("label", config, "--count", 50, "--out", out).returncode == 0
    assert [(len(table(out)), {row["inclusion"] for row in table(out)})] == [(7, {"1"})]


def test_a_filled_table_goes_into_the_prompts_and_says_what_premise_asks(config, tmp_path):
    out, labelled = tmp_path / "labels.csv", tmp_path / "labelled.jsonl"
    restrain("label", config, "--count", 3, "--out", out)
    chosen = [row["id"] for row in table(out)]
    fill(out, {chosen[0]: "22", chosen[1]: "11"})
    done = restrain("label", config, "--filled", out, "--out", labelled)
    assert "2 of 7 prompts have a label" in done.stderr
    rows = [json.loads(line) for line in labelled.read_text().splitlines()]
    assert {row["id"]: row["answer"] for row in rows if row["answer"]} == {chosen[0]: "22", chosen[1]: "11"}
    assert rows[0]["source"] == "x", "other columns stay"
    assert "2 prompts have gold" in restrain("premise", "--reference", tmp_path / "ref.jsonl", "--gold", out).stdout
    mixed = ("--set", f"openrlhf.data.prompt_dataset={labelled}", "--set", "method.gold=where_given")
    assert restrain("show", config, *mixed, "--set", "openrlhf.data.label_key=answer").returncode == 0
    assert "data.label_key is not set" in refused("show", config, *mixed)


def test_answers_are_asked_for_and_an_empty_one_is_unknown(config, tmp_path, monkeypatch):
    typed = iter(["22", ""])
    monkeypatch.setattr("typer.prompt", lambda *_given, **_more: next(typed))
    done = restrain("label", config, "--count", 2, "--ask", "--out", tmp_path / "labels.csv")
    assert "1 of 2: problem 4\nvotes: 4 of 8: 21; 4 of 8: 22" in done.stderr
    assert [row["answer"] for row in table(tmp_path / "labels.csv")] == ["22", ""]


def test_bad_input_is_one_line(config, tmp_path):
    out = tmp_path / "labels.csv"
    without = ("label", config, "--out", out, "--set", "reference=null", "--set", "method.prompt_weight=1")
    assert "reference is not set. Make one with `restrain reference CONFIG`" in refused(*without)
    out.write_text("id,problem,votes,answer\np9,problem 9,,1\n")
    assert "none of its 1 problems is in" in refused("label", config, "--filled", out, "--out", tmp_path / "x.jsonl")
    out.write_text("id,problem,votes,answer\np1,problem 1,,\n")
    assert "has no rows" in refused("label", config, "--filled", out, "--out", tmp_path / "x.jsonl")
    labelled = tmp_path / "labelled.jsonl"
    labelled.write_text('{"problem": "problem 1", "answer": "7"}\n')
    out.write_text("id,problem,votes,answer\np1,problem 1,,8\n")
    fewer = ("label", config, "--set", f"openrlhf.data.prompt_dataset={labelled}")
    other = (*fewer, "--filled", out)
    assert "labels a prompt '8' that has the answer '7' already" in refused(*other, "--out", tmp_path / "x.jsonl")
    assert "ref.jsonl was made for other prompts than" in refused(*fewer, "--out", tmp_path / "new.csv")
    lost = "exists, and its answers or prompts would be lost"
    for table_or_prompts in ((), ("--filled", out)):
        assert lost in refused("label", config, *table_or_prompts, "--out", out)
    assert lost in refused(*other, "--out", labelled), "the prompts themselves"
    out.write_text("id,problem,answer\np1,problem 1,7\np2,problem\u00a02,8\n")
    assert "1 answers are to other problems" in refused(*other, "--out", tmp_path / "x.jsonl")
