"""The demo's task: seeded, without overlap, and without gold where it must not be; the shipped model fits it."""

import json

import pytest

from restrain_openrlhf.answers import extract
from restrain_openrlhf.demo.run import MODEL
from restrain_openrlhf.demo.task import heldout_problems, solution, training_problems, write_prompts
from restrain_openrlhf.demo.tokenizer import BOX, VOCABULARY


def test_problems_are_seeded_different_and_disjoint():
    training, heldout = training_problems(600), heldout_problems(200)
    assert training == training_problems(600)
    assert len({problem.problem for problem in training}) == 600
    assert not {problem.problem for problem in training} & {problem.problem for problem in heldout}


def test_a_longer_training_set_begins_like_a_shorter_one():
    assert training_problems(100) == training_problems(300)[:100]


@pytest.mark.parametrize(
    ("first", "second", "right", "forgetful"),
    [(123, 456, "0579", "0579"), (999, 101, "1100", "0090"), (555, 555, "1110", "0000")],
)
def test_scratch_work_is_right_or_wrong_by_its_carries(first, second, right, forgetful):
    assert extract(solution(first, second)) == right
    assert extract(solution(first, second, forgets=lambda: True)) == forgetful


def test_the_training_file_has_no_gold(tmp_path):
    write_prompts(tmp_path / "p.jsonl", training_problems(50))
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert {tuple(row) for row in rows} == {("id", "problem")}


@pytest.mark.host
def test_the_shipped_model_reads_what_the_task_writes():
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    text = "What is $\\frac{1}{2}+3$?\n" + solution(123, 456)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert ids.count(VOCABULARY.index(BOX)) == 1
    config = transformers.AutoConfig.from_pretrained(MODEL)
    assert (config.vocab_size, config.max_position_embeddings) == (len(VOCABULARY), 2048)
