"""`restrain analyze RUN --gold FILE`: what a user sees of a run's labels, and what bad input gets."""

import csv
import json
import shutil
from dataclasses import replace

import pytest

from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.records.kept import as_parquet, write_step
from tests.command_line import refused, restrain
from tests.evaluation.test_label_quality import RUN

ANSWERS = {"1+1=": "2", "2+2=": "4", "3+3=": "6", "5+5=": "10"}


@pytest.fixture
def run(tmp_path):
    """The run that is counted by hand in tests/evaluation/test_label_quality.py."""
    folder = tmp_path / "run"
    for step in (1, 2):
        write_step(folder, step, as_parquet([group for group in RUN if group.step == step]))
    return folder


@pytest.fixture
def gold(write_jsonl):
    return write_jsonl("gold.jsonl", [{"problem": problem, "answer": answer} for problem, answer in ANSWERS.items()])


def test_numbers_for_programs(run, gold):
    done = restrain("analyze", run, "--gold", gold, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["total"]["reward_accuracy"] == 11 / 16
    printed = restrain("analyze", run, "--gold", gold).stdout
    assert [
        cell
        for cell in next(line for line in printed.splitlines() if "40.0%" in line).replace("│", " ").split()
        if not cell.startswith(("11.", "to", "76."))
    ] == ["5", "40.0%", "80.0%", "40.0%", "68.8%", "16"]
    assert "Without gold: 1 of 5 prompts and 1 groups." in printed


CHAT_TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<eos>{% endfor %}<assistant>"


def test_gold_is_found_for_chats_of_several_messages(tmp_path, write_jsonl):
    """Neither is the problem's text a part of the prompt, nor do all prompts have one system message."""
    pytest.importorskip("transformers", reason="needs the training stack: make install")
    shutil.copytree(ADDITION.model, tmp_path / "model")
    (tmp_path / "model" / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    chats = [
        [{"role": "system", "content": text}, {"role": "user", "content": "Go on."}] for text in ("Add 1+1.", "2+2")
    ]
    train = write_jsonl("train.jsonl", [{"problem": chat} for chat in chats])
    rows = zip(chats, ("2", "5"), strict=True)
    with (tmp_path / "gold.csv").open("w") as file:
        csv.writer(file).writerows([("problem", "answer"), *((json.dumps(chat), answer) for chat, answer in rows)])
    prompts = [f"<system>{chat[0]['content']}<eos><user>Go on.<eos><assistant>" for chat in chats]
    rollouts = tuple(replace(each, answer="2") for each in RUN[0].rollouts)
    groups = [
        replace(RUN[0], group=place, prompt=prompt, prompt_id=text_hash(prompt), rollouts=rollouts)
        for place, prompt in enumerate(prompts)
    ]
    write_step(tmp_path / "run", 1, as_parquet(groups))
    flags = {"data.prompt_dataset": str(train), "data.input_key": "problem", "data.apply_chat_template": True}
    flags["actor.model_name_or_path"] = str(tmp_path / "model")
    (tmp_path / "run" / "run.json").write_text(json.dumps({"method": {"name": "restrain"}, "openrlhf": flags}))
    done = restrain("analyze", tmp_path / "run", "--gold", tmp_path / "gold.csv", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["prompts_without_gold"], found["total"]["rollout_accuracy"]) == (0, 1 / 2)


def test_gold_that_gives_an_options_place_is_that_option(tmp_path, write_jsonl):
    """As MMLU has it."""
    problem = "Which is the capital of France?"
    rows = write_jsonl("prompts.jsonl", [{"problem": problem, "options": ["Lyon", "Paris", "Nice"]}])
    (near, *_) = RUN
    answers = ("Paris", "Paris", "Lyon", None)
    rollouts = [replace(each, answer=answer) for each, answer in zip(near.rollouts, answers, strict=True)]
    group = replace(near, prompt=problem, prompt_id=text_hash(problem), rollouts=tuple(rollouts))
    write_step(tmp_path / "run", 1, as_parquet([group]))
    flags = {"data.prompt_dataset": str(rows), "data.input_key": "problem"}
    resolved = {"answers": {"name": "choice"}, "method": {"name": "restrain"}, "openrlhf": flags}
    (tmp_path / "run" / "run.json").write_text(json.dumps(resolved))
    for answer in ("B", "1", "Paris"):
        file = write_jsonl("gold.jsonl", [{"problem": problem, "answer": answer}])
        found = json.loads(restrain("analyze", tmp_path / "run", "--gold", file, "--json").stdout)
        assert found["total"]["rollout_accuracy"] == 1 / 2, answer


def test_bad_input_is_one_line(run, gold, write_jsonl, tmp_path):
    wrong = write_jsonl("wrong.jsonl", [{"q": "1+1=", "answer": "2"}])
    other = write_jsonl("other.jsonl", [{"problem": "7+7=", "answer": "14"}])
    for file, message in (
        (tmp_path / "absent.jsonl", "no such file"),
        (wrong, "line 1: has none of the columns `problem`, `prompt_hash` and `id`"),
        (other, "answers none of the 5 prompts that were kept"),
    ):
        assert message in refused("analyze", run, "--gold", file)
    assert "has no kept rollouts" in refused("analyze", tmp_path / "absent", "--gold", gold)
    (run / "run.json").write_text(json.dumps({"answers": {"name": "choice"}, "method": {"name": "restrain"}}))
    assert "this run does not record its training set" in refused("analyze", run, "--gold", gold)
