"""The demo's task: seeded, without overlap, and without gold where it must not be; the shipped model fits it."""

import json

import pytest

from restrain_openrlhf.data.demo_tasks.addition import MOST_PROBLEMS, heldout_problems, training_problems
from restrain_openrlhf.data.demo_tasks.problems import write_gold, write_prompts
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from restrain_openrlhf.errors import DataError


def operands(problems):
    """Unordered, so that 123+456 and 456+123 count as one addition."""
    return {frozenset(problem.problem.removesuffix("=").split("+")) for problem in problems}


def test_problems_are_seeded_different_and_disjoint():
    training, heldout = training_problems(600), heldout_problems(200)
    assert training == training_problems(600)
    assert len({problem.problem for problem in training}) == 600
    assert not operands(training) & operands(heldout)


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_no_seed_of_one_side_reaches_the_other(seed):
    assert not operands(training_problems(3000, seed)) & operands(heldout_problems(3000, seed))


@pytest.mark.parametrize("problems", [training_problems, heldout_problems])
def test_another_seed_is_another_set(problems):
    assert problems(100, 1) != problems(100, 2)


@pytest.mark.parametrize("problems", [training_problems, heldout_problems])
@pytest.mark.parametrize("count", [-1, 0, MOST_PROBLEMS + 1])
def test_a_number_the_task_cannot_give_is_refused(problems, count):
    with pytest.raises(DataError, match="1 to 40,000"):
        problems(count)


def test_gold_is_the_sum():
    for problem in [*training_problems(50), *heldout_problems(50)]:
        first, second = problem.problem.removesuffix("=").split("+")
        assert problem.answer == str(int(first) + int(second))


def test_a_longer_training_set_begins_like_a_shorter_one():
    assert training_problems(100) == training_problems(300)[:100]


def test_the_training_file_has_no_gold(tmp_path):
    write_prompts(tmp_path / "p.jsonl", training_problems(50))
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert {tuple(row) for row in rows} == {("id", "problem")}


def test_the_held_out_file_has_gold(tmp_path):
    write_gold(tmp_path / "h.jsonl", heldout_problems(3))
    rows = [json.loads(line) for line in (tmp_path / "h.jsonl").read_text().splitlines()]
    assert [row["answer"] for row in rows] == [problem.answer for problem in heldout_problems(3)]


@pytest.mark.host
def test_the_shipped_model_loads_and_has_its_documented_size():
    transformers = pytest.importorskip("transformers", reason="needs the training stack: make install")
    model = transformers.AutoModelForCausalLM.from_pretrained(ADDITION.model)
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert model.num_parameters() == 800_896
    assert (ADDITION.model / "model.safetensors").stat().st_size < 2_000_000
