"""Gold that users give: every command that takes a file of it reads the same answers from JSON Lines and from CSV."""

import csv
import json
from dataclasses import replace

import pytest

from restrain_openrlhf.answers import MATHEMATICS, parse_kind
from restrain_openrlhf.data.benchmarks import load_benchmark
from restrain_openrlhf.data.gold import ProblemIdentity, load_gold
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.reference.prompts import PromptSource, count_labelled
from test_time.adaptation import Adaptation
from test_time.outcome import gold_of
from test_time.problems import Source, load_problems
from tests.command_line import refused, restrain
from tests.commands.premise.passes import write_pass
from tests.commands.view.runs import boxed, scored_group, write_run

# Ids that are no places, an answer that CSV has to quote, one that Python calls false, and a text on two lines.
PROBLEMS = {"q7": "problem 0", "007": "problem 1", "x": "problem 2"}
ANSWERS = {"q7": "0", "007": "(1, 2)", "x": "3"}
GIVEN = {"q7": ["0", "0", "1", "0"], "007": ["(1,2)", "2", "2", "2"], "x": ["3", "3", "3", "4"]}


@pytest.fixture
def material(tmp_path, write_jsonl):
    """A file of rollouts, an offline pass, a test set and a run with kept rollouts, all of the same three problems."""
    rows = [{"id": name, "problem": text, "responses": boxed(*GIVEN[name])} for name, text in PROBLEMS.items()]
    write_jsonl("rollouts.jsonl", rows)
    write_jsonl("prompts.jsonl", [{"id": name, "problem": text} for name, text in PROBLEMS.items()])
    write_pass(tmp_path / "reference.jsonl", list(GIVEN.values()))
    passed = [json.loads(line) for line in (tmp_path / "reference.jsonl").read_text().splitlines()]
    write_jsonl("reference.jsonl", [{**row, "id": name} for row, name in zip(passed, PROBLEMS, strict=True)])
    template = "Solve: {} Answer:"
    groups = [
        scored_group(1, place, template.format(text), boxed(*GIVEN[name]))
        for place, (name, text) in enumerate(PROBLEMS.items())
    ]
    write_run(tmp_path / "run", groups)
    flags = {"data.prompt_dataset": str(tmp_path / "prompts.jsonl"), "data.input_key": "problem"}
    (tmp_path / "run" / "run.json").write_text(json.dumps({"openrlhf": flags}))
    return tmp_path


def write_gold(folder, form, key, answers=ANSWERS):
    by = {"id": lambda name: name, "problem": PROBLEMS.get, "prompt_hash": lambda name: text_hash(PROBLEMS[name])}[key]
    rows = [{key: by(name), "answer": answer} for name, answer in answers.items()]
    path = folder / f"gold-by-{key}.{form}"
    with path.open("w", newline="") as file:
        if form == "csv":
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        else:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def labels(folder, gold):
    found = json.loads(restrain("analyze", folder / "run", "--gold", gold, "--json").stdout)
    return found["total"]["label_accuracy"], found["prompts_without_gold"]


def premise(option, name):
    def run(folder, gold):
        done = restrain("premise", option, folder / name, "--gold", gold, "--json")
        found = json.loads(done.stdout)["gold"]
        return found["prompts"], found["pass_at_1"]

    return run


def page(folder, gold):
    (folder / "page.html").unlink(missing_ok=True)
    done = restrain("view", folder / "run", "--gold", gold, "--out", folder / "page.html")
    assert done.returncode == 0, done.stderr
    return "Gold has 3 of 3 prompts" in (folder / "page.html").read_text()


def adapted(folder, gold):
    """As `test-time adapt` reads it."""
    job = Adaptation(model="m", problems=Source(str(folder / "prompts.jsonl")), out=folder / "out", gold=gold)
    return dict(gold_of(job, load_problems(job.problems)))


# What each command has to find, counted by hand: right are 0 of q7 thrice, (1,2) of 007 once, 3 of x thrice.
COMMANDS = {
    "analyze-run": (labels, (2 / 3, 0)),
    "premise-rollouts": (premise("--rollouts", "rollouts.jsonl"), (3, 7 / 12)),
    "premise-reference": (premise("--reference", "reference.jsonl"), (3, 7 / 12)),
    "view": (page, True),
    "adapt": (adapted, ANSWERS),
}


@pytest.mark.parametrize(("form", "key"), [("csv", "id"), ("jsonl", "problem"), ("jsonl", "prompt_hash")])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_reads_gold_of_both_forms_by_every_key(material, command, form, key):
    run, expected = COMMANDS[command]
    found = run(material, write_gold(material, form, key))
    assert found == (pytest.approx(expected) if command.startswith("premise") else expected)


def test_ids_that_match_nothing_are_refused_by_every_command(material):
    """An id counted from 1 where the problems' begin at 0 fits all but one: the answers of all would be wrong."""
    gold = write_gold(material, "csv", "id", {"q7": "0", "8": "5", "9": "6"})
    for words in (
        ("analyze", material / "run"),
        ("premise", "--reference", material / "reference.jsonl"),
        ("view", material / "run", "--out", material / "page.html"),
    ):
        said = " ".join(refused(*words, "--gold", gold).split())
        assert "2 of its 3 ids match no problem" in said, words
        assert "'8', '9'. If the other rows" in said, words
    with pytest.raises(DataError, match="2 of its 3 ids match no problem"):
        adapted(material, gold)


def test_problems_without_ids_have_no_gold_by_id(material, write_jsonl):
    write_jsonl("prompts.jsonl", [{"problem": text} for text in PROBLEMS.values()])
    gold = write_gold(material, "csv", "id")
    assert "3 of its 3 ids match no problem" in refused("view", material / "run", "--gold", gold)
    (material / "run" / "run.json").unlink()
    assert "this run does not record its training set" in refused("view", material / "run", "--gold", gold)
    assert page(material, write_gold(material, "csv", "problem"))


def identities(problems):
    return [ProblemIdentity.of(name, text) for name, text in problems]


def test_an_id_of_two_problems_and_two_answers_to_one_are_refused(write_jsonl):
    gold = load_gold(write_jsonl("gold.jsonl", [{"id": 1, "answer": "4"}, {"problem": "p", "answer": "5"}]))
    with pytest.raises(DataError, match="two problems have the id '1'"):
        gold.answers("sets", identities([(1, "p"), (1, "q")]))
    with pytest.raises(DataError, match="the id '1' has two answers, '5' and '4'"):
        gold.answers("set", identities([(1, "p")]))
    assert gold.answers("set", identities([(1, "q"), (None, "p")])) == {text_hash("q"): "4", text_hash("p"): "5"}


def test_a_problems_text_counts_more_than_its_id(write_jsonl):
    """Rows with both are found by their text, which proves what the answer belongs to: ids of two files may differ."""
    gold = load_gold(write_jsonl("gold.jsonl", [{"id": 1, "problem": "p", "answer": "4"}]))
    assert gold.answers("set", identities([(7, "p")])) == {text_hash("p"): "4"}
    with pytest.raises(DataError, match="none of its 1 problems is in set"):
        gold.answers("set", identities([(1, "q")]))


def test_gold_may_have_answers_to_other_problems(write_jsonl):
    gold = load_gold(write_jsonl("gold.jsonl", [{"problem": name, "answer": name} for name in "pq"]))
    found = gold.answers("set", identities([(None, "q"), (None, "z")]))
    assert (found[text_hash("q")], text_hash("z") in found) == ("q", False)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("gold.jsonl", '{"answer": "1"}', "line 1: has none of the columns `problem`, `prompt_hash` and `id`"),
        ("gold.csv", "problem,answer\np,1\np,2\n", "row 2: the same problem has two answers, '1' and '2'"),
        ("gold.jsonl", '{"id": 1, "answer": "1"}\n{"id": "1", "answer": "2"}', "line 2: the id '1' has two answers"),
        ("gold.jsonl", '{"id": 1, "answer": " "}', "line 1: answer is empty"),
        ("gold.jsonl", '{"id": 1, "answer": null}', "line 1: answer"),
        ("gold.jsonl", '{"id": 1, "answer": NaN}', "line 1: answer: .*nan is no answer"),
        ("gold.jsonl", "", "has no rows"),
        ("gold.csv", "id,gold\n1,4\n", "row 1: answer: Field required; its columns are id, gold"),
        ("gold.csv", "id;answer\n3;\n", "row 1: answer is empty"),
        ("gold.csv", "id;answer\n3;4\n4; nan\n", "row 2: its gold answer is nan, as programs write a missing value"),
    ],
)
def test_bad_gold_is_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        load_gold(tmp_path / name)


@pytest.mark.parametrize("word", ["nan", "null", "None"])
def test_a_missing_value_that_is_written_out_is_gold_only_where_answers_are_words(write_jsonl, word):
    rows = [{"id": 1, "problem": "p", "responses": boxed(word), "answer": word}]
    path, words = write_jsonl("r.jsonl", rows), parse_kind({"name": "text"})
    assert load_gold(path, words).by_problem == {text_hash("p"): word}
    source = PromptSource(str(path), "problem")
    assert count_labelled(source, "answer", words) == (1, 1)
    with pytest.raises(DataError, match=rf"r.jsonl, line 1: its gold answer is {word}"):
        count_labelled(source, "answer", MATHEMATICS)
    for command in (("premise", "--rollouts", path), ("score", path, "--out", path.with_name("o.jsonl"))):
        assert f"line 1: its gold answer is {word}" in refused(*command)
    with pytest.raises(DataError, match=f"its gold answer is {word}"):
        load_benchmark(f"mine={path}")
    blank = write_jsonl("blank.jsonl", [{"problem": "p", "answer": each} for each in (" ", None, "0")])
    assert count_labelled(replace(source, dataset=str(blank)), "answer", MATHEMATICS) == (1, 3)


def test_an_own_answer_of_zero_is_gold(write_jsonl):
    rows = [{"id": 1, "problem": "p", "responses": boxed("0", "0", "1", "0"), "answer": 0}]
    found = json.loads(restrain("premise", "--rollouts", write_jsonl("r.jsonl", rows), "--json").stdout)
    assert found["gold"]["pass_at_1"] == 0.75
