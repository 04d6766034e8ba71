"""Prompts as people have them: files that other programs write, read alike by every command that reads prompts."""

import csv
import json
from dataclasses import replace

import pytest

from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.data.benchmarks import load_benchmark
from restrain_openrlhf.data.gold import ProblemIdentity, load_gold
from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.data.prepare import prepare
from restrain_openrlhf.data.prompt_reader import PromptReader
from restrain_openrlhf.data.sources import OWN
from restrain_openrlhf.data.tables import placed_rows
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.job import TEMPLATES, benchmark_prompts
from restrain_openrlhf.method import parse_settings
from restrain_openrlhf.reference.prompts import PromptSource, load_prompts
from test_time.problems import Source, load_problems

pd = pytest.importorskip("pandas", reason="needs pandas, which the training stack brings: make install")
datasets = pytest.importorskip("datasets", reason="needs datasets: pip install restrain-openrlhf[data]")

# Every separator, quotes, letters beyond ASCII, what pandas takes for nothing, and a number that is no number.
QUESTIONS = ['Is "1, 2; 3" sorted?', "Größe von 3×3?", "NA", "007"]
ANSWERS = ["yes!", "9", "n/a", "1.0"]
PAIRS = [{"problem": question, "answer": answer} for question, answer in zip(QUESTIONS, ANSWERS, strict=True)]
FRAME = pd.DataFrame(PAIRS)
SYSTEM = {"role": "system", "content": "Be brief."}
TURNS = [SYSTEM, {"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Ask."}]


def excel(separator, columns=("problem", "answer")):
    """As Excel writes a sheet with an empty row at its end: quotes only where a cell has the separator or quotes."""

    def cell(text):
        return '"' + text.replace('"', '""') + '"' if separator in text or '"' in text else text

    rows = [columns, *([row[name] for name in columns] for row in PAIRS)]
    lines = [separator.join(map(cell, row)) for row in rows] + [separator * (len(columns) - 1)]
    return "".join(f"{line}\r\n" for line in lines)


def module_csv(path):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["answer", "problem"], dialect="excel-tab", quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(PAIRS)


def chats(name, *before, after=()):
    """A row for each question, with a chat in the column `name`."""
    return [
        {name: [*before, {"role": "user", "content": row["problem"]}, *after], "answer": row["answer"]} for row in PAIRS
    ]


def verl(*before):
    """The columns are those of verl's preprocessing of MATH (examples/data_preprocess)."""
    return [
        {
            "data_source": "lighteval/MATH",
            "prompt": row["prompt"],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": row["answer"]},
            "extra_info": {"split": "train", "index": place},
        }
        for place, row in enumerate(chats("prompt", *before))
    ]


def json_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


OPENAI = [{"messages": row["messages"]} for row in chats("messages", SYSTEM, after=(TURNS[-1],))]
TTRL = [
    {"prompt": row["problem"], "answer": row["answer"], "source": "AIME", "id": f"{i}"} for i, row in enumerate(PAIRS)
]
# For each file: how it is written, the messages before each question, and what is said of it.
FORMATS = {
    "excel.csv": (lambda path: path.write_bytes(b"\xef\xbb\xbf" + excel(";").encode()), [], "column 'problem'"),
    "excel-one-column.csv": (lambda path: path.write_bytes(excel(";", ("problem",)).encode()), [], "column 'problem'"),
    "module.TSV": (module_csv, [], "column 'problem'"),
    "pandas.csv": (FRAME.to_csv, [], "column 'problem'"),
    "pandas.tsv": (lambda path: FRAME.to_csv(path, sep="\t", index=False), [], "column 'problem'"),
    "pandas.parquet": (FRAME.to_parquet, [], "column 'problem'"),
    "datasets.json": (lambda path: datasets.Dataset.from_list(PAIRS).to_json(path), [], "column 'problem'"),
    "lines.txt": (lambda path: path.write_text("\n\n".join(QUESTIONS) + "\n"), [], "each line"),
    "ttrl.json": (lambda path: path.write_text(json.dumps(TTRL, indent=4)), [], "column 'prompt'"),
    "Question.csv": (
        lambda path: FRAME.rename(columns={"problem": "Question"}).to_csv(path, index=False),
        [],
        "column 'Question'",
    ),
    "verl.parquet": (lambda path: pd.DataFrame(verl()).to_parquet(path), [], "column 'prompt' (a chat)"),
    "system.parquet": (
        lambda path: datasets.Dataset.from_list(verl(SYSTEM)).to_parquet(path),
        [SYSTEM],
        "column 'prompt' (a chat)",
    ),
    "turns.jsonl": (lambda path: path.write_text(json_lines(verl(*TURNS))), TURNS, "column 'prompt' (a chat)"),
    "cells.csv": (
        lambda path: pd.DataFrame(chats("prompt", SYSTEM)).to_csv(path, index=False),
        [SYSTEM],
        "column 'prompt' (a chat)",
    ),
    "openai.jsonl": (lambda path: path.write_text(json_lines(OPENAI)), [SYSTEM], "column 'messages' (a chat)"),
}
# Files without a column of answers.
UNGRADED = {"excel-one-column.csv", "lines.txt", "openai.jsonl"}


class Tags:
    """A tokenizer whose chat template writes every message behind its role."""

    chat_template = "{{ messages }}"

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        return "".join(f"<{message['role']}>{message['content']}" for message in messages) + "<answer>"


def as_policy_sees(path, key="problem"):
    return [each.text for each in load_prompts(PromptSource(str(path), key, apply_chat_template=True), Tags())]


def adapted(path, out, column=None):
    write_rows(out, load_problems(Source(str(path), column)))
    return as_policy_sees(out)


def reference(path, out, column=None):
    return as_policy_sees(path, column or "problem")


def prepared(path, out, column=None):
    prepare(replace(OWN, prompt=column), str(path), out)
    return as_policy_sees(out)


def evaluated(path, out, column=None):
    loaded = load_benchmark(f"mine={path}", column=column)
    assert [each.answer for each in loaded.problems] == ANSWERS
    return [each.text for each in benchmark_prompts(loaded, TEMPLATES["chat"], Tags())]


def trained(path, out, column=None):
    """The rows as checked before training, as the hook gives them to OpenRLHF, and in its rendering."""
    host = pytest.importorskip("openrlhf.datasets.prompts_dataset", reason="needs the training stack: make install")
    from restrain_openrlhf.hook.rollout import training_data

    checked = reference(path, out, column)
    rows = training_data.blending_datasets(lambda *_: pytest.fail("the host's own reader"), None, (str(path),), {})
    rows = rows.select(range(len(rows)))
    given = {"input_key": column or "problem", "apply_chat_template": Tags().apply_chat_template}
    read = getattr(host.preprocess_data, "__wrapped__", host.preprocess_data)
    assert len(list(rows)) == len(rows)
    assert [training_data.preprocess_data(read, None, (row,), dict(given))[0] for row in rows] == checked
    return checked


COMMANDS = {
    "adapt": adapted,
    "reference": reference,
    "prepare": prepared,
    "evaluate": evaluated,
    "train": trained,
}


@pytest.fixture(autouse=True)
def label_free(monkeypatch):
    from restrain_openrlhf.hook.install.environment import to_environment

    for name, value in to_environment(HookConfig(method=parse_settings({"name": "ttrl"}))).items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_every_command_sees_the_same_prompts_in_every_file(tmp_path, name, command):
    if command is evaluated and name in UNGRADED:
        pytest.skip("it has no answers to grade with")
    write, before, _ = FORMATS[name]
    write(tmp_path / name)
    begun = "".join(f"<{message['role']}>{message['content']}" for message in before)
    assert command(tmp_path / name, tmp_path / "out.jsonl") == [f"{begun}<user>{each}<answer>" for each in QUESTIONS]
    if command is prepared:
        assert not any(answer in (tmp_path / "out.jsonl").read_text() for answer in ("yes!", "1.0", 'Ask."}]'))


@pytest.mark.parametrize("name", FORMATS)
def test_what_was_read_as_what_is_said_in_a_line(tmp_path, name):
    write, _, source = FORMATS[name]
    write(tmp_path / name)
    reader = PromptReader("--column")
    for place, row in placed_rows(tmp_path / name):
        reader.read(place, row)
    left_out = "" if name in UNGRADED - {"openai.jsonl"} else ", answers left out"
    assert reader.summary() == f"prompts: 4 from {source}{left_out}"


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - UNGRADED))
def test_the_file_of_the_prompts_is_a_gold_file_too(tmp_path, name):
    """TTRL's rows have ids, by which gold is found; all other rows are found by their prompts."""
    FORMATS[name][0](tmp_path / name)
    asked = [ProblemIdentity.of(each.id, each.text) for each in load_problems(Source(str(tmp_path / name)))]
    assert list(load_gold(tmp_path / name).answers("set", asked).values()) == ANSWERS


ALPACA = {"instruction": "Add.", "input": "1+1", "output": "2", "answer": "2"}
CONTEXT = {"context": "Bo is 5.", "question": "How old is Bo?", "answer": "5"}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
@pytest.mark.parametrize(
    ("row", "columns", "asked"),
    [(ALPACA, "instruction,input", "Add.\n1+1"), (CONTEXT, "context,question", "Bo is 5.\nHow old is Bo?")],
)
def test_a_prompt_that_may_be_several_columns_is_a_question_and_its_flag_answers_it(
    write_jsonl, tmp_path, monkeypatch, command, row, columns, asked
):
    monkeypatch.setitem(globals(), "ANSWERS", [row["answer"]])
    path, (first, last) = write_jsonl("p.jsonl", [row]), columns.split(",")
    with pytest.raises(DataError, match=rf"may be '{first}' and '{last}'.*(column|data\.input_key).*\({columns}\)"):
        command(path, tmp_path / "out.jsonl")
    assert command(path, tmp_path / "out.jsonl", columns) == [f"<user>{asked}<answer>"]
    assert command(path, tmp_path / "out.jsonl", first) == [f"<user>{row[first]}<answer>"]
    filled = {**row, first if first == "context" else last: " "}
    assert len(command(write_jsonl("one.jsonl", [filled]), tmp_path / "out.jsonl")) == 1, "only one is not empty"


def chat(*messages):
    return {"problem": [{"role": role, "content": text} for role, text in messages]}


# A row that must not be trained on, and what every command says of it.
REFUSED = [
    ('{"problem": 5}', "line 1: its prompt is 5, and no text. Write it in quotes"),
    ('{"problem": true}', "line 1: its prompt is True, and no text"),
    ('{"problem": NaN}', "line 1: its prompt is nan, and no text"),
    ('{"problem": null}', "line 1: its prompt is empty"),
    ('{"problem": " \\t"}', "line 1: its prompt is empty"),
    ('{"problem": {"text": "a"}}', "line 1: its prompt is {'text': 'a'}, and no text"),
    ('{"problem": ["a", "b"]}', "line 1: its prompt is the list ['a', 'b'], and no chat"),
    ('{"problem": []}', "line 1: its prompt is the list [], and no chat"),
    ('{"problem": "a\\u0000"}', "line 1: its prompt has a NUL character in it"),
    ('{"problem": "\\ufeffa"}', "line 1: its prompt has a byte order mark in it"),
    ('{"problem": "a"}\n{"question": "b"}', "line 2: its prompt is in 'question', but that of the rows before is in"),
    ('{"text": "a"}', "line 1: has no known column of prompts; its columns are answer, text"),
    (json.dumps(chat(("user", "a"), ("system", "b"))), "a chat in which the user says nothing at the end"),
    (json.dumps(chat(("assistant", "a"))), "a chat in which the user says nothing at the end"),
    (json.dumps(chat(("system", "b"), ("user", " "))), "line 1: its prompt is empty"),
    (json.dumps(chat(("system", "\ufeff"), ("user", "a"))), "line 1: its prompt has a byte order mark in it"),
    ('{"problem": [{"role": "user", "content": [{"type": "text"}]}]}', "and no chat of messages"),
    ("{\"problem\": \"[{'role': 'user' 'content': 'a'}]\"}", "its prompt looks like a chat, but is not"),
]


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
@pytest.mark.parametrize(("lines", "message"), REFUSED)
def test_what_would_be_trained_on_as_something_else_is_refused_with_its_row(tmp_path, lines, message, command):
    path = tmp_path / "p.jsonl"
    path.write_text(lines.replace("}\n", ', "answer": "1"}\n') if "\n" in lines else lines[:-1] + ', "answer": "1"}')
    with pytest.raises(DataError) as error:
        command(path, tmp_path / "out.jsonl")
    assert message in str(error.value)
    assert "line " in str(error.value)
