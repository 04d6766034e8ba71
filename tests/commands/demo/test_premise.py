"""The premise task: seeded, disjoint, without gold where it must not be; its model fits it."""

import json

import pytest

from restrain_openrlhf.config.command_line import find_config
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.data.demo_tasks import premise
from restrain_openrlhf.data.demo_tasks.problems import write_prompts
from restrain_openrlhf.data.demo_tasks.tasks import PREMISE
from restrain_openrlhf.errors import DataError


def test_problems_are_seeded_different_and_disjoint_beyond_one_column():
    training, heldout = PREMISE.training_problems(2000), PREMISE.heldout_problems(200)
    assert training == PREMISE.training_problems(2000)
    assert len({problem.problem for problem in training}) == 2000
    shared = {problem.problem for problem in training} & {problem.problem for problem in heldout}
    assert shared
    assert all(len(text.partition("*")[0].strip(".")) == 1 for text in shared)


def test_gold_is_the_last_digit_of_each_columns_product():
    assert premise.answer((7, 6, 3), (6, 6, 1)) == "263"
    assert premise.text((7, 6, 3), (6, 6, 1)) == "763...*661...="
    for problem in PREMISE.training_problems(100):
        a, b = (side.strip(".=") for side in problem.problem.split("*"))
        assert problem.answer == "".join(str(int(x) * int(y) % 10) for x, y in zip(a, b, strict=True))
        assert problem.answer[0] != "0"


@pytest.mark.parametrize("count", [-1, 0, premise.MOST_PROBLEMS + 1])
def test_a_number_the_task_cannot_give_is_refused(count):
    with pytest.raises(DataError, match="1 to 20,000"):
        PREMISE.training_problems(count)


def test_the_training_file_has_no_gold(tmp_path):
    write_prompts(tmp_path / "p.jsonl", PREMISE.training_problems(50))
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert {tuple(row) for row in rows} == {("id", "problem")}


@pytest.mark.host
def test_a_response_and_its_end_fit_the_demo_s_budget():
    transformers = pytest.importorskip("transformers", reason="needs the training stack: make install")
    tokenizer = transformers.AutoTokenizer.from_pretrained(PREMISE.model)
    budget = load_run_config(find_config(PREMISE.preset)).openrlhf
    prompt, response = (tokenizer(text)["input_ids"] for text in ("1" * 6 + "*" + "1" * 6 + "=", r"\boxed{111111}"))
    assert len(response) + 1 <= int(budget["rollout.max_new_tokens"])
    assert len(prompt) + int(budget["rollout.max_new_tokens"]) <= int(budget["data.max_len"])
