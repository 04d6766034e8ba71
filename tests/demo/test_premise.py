"""The premise task: seeded, disjoint, without gold where it must not be; its examples and model are as documented."""

import json
import math
import random
from collections import Counter
from dataclasses import replace

import pytest

from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.demo import premise
from restrain_openrlhf.demo.calibration import BOUNDS, PREMISE_BOUNDS, Calibration, refuse_outside
from restrain_openrlhf.demo.problems import write_prompts
from restrain_openrlhf.demo.tasks import PREMISE, TASKS, task_named
from restrain_openrlhf.errors import ConfigError, DataError

INSIDE = Calibration(640, 0.35, 0.62, 0.16, 0.05, 0.5, 1.0)


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


def test_a_run_of_more_prompts_than_an_episode_comes_to_the_same_ones_again():
    assert PREMISE.training_set(1280) == PREMISE.training_set(640)
    assert len(TASKS["addition"].training_set(1280)) == 1280


def test_an_unknown_task_is_named_with_those_that_exist():
    with pytest.raises(ConfigError, match=r"no demo task 'sums'\. The tasks are: premise, addition"):
        task_named("sums")


def test_the_training_file_has_no_gold(tmp_path):
    write_prompts(tmp_path / "p.jsonl", PREMISE.training_problems(50))
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert {tuple(row) for row in rows} == {("id", "problem")}


def test_facts_are_mastered_between_their_bounds_but_for_a_few_bad_ones():
    bad = [fact for fact in premise.FACTS.values() if fact.mastery == premise.BAD_MASTERY]
    assert len(premise.FACTS) == 100
    assert 0 < len(bad) <= 5
    others = [fact for fact in premise.FACTS.values() if fact not in bad]
    assert all(premise.LEAST_MASTERY <= fact.mastery <= premise.MOST_MASTERY for fact in others)
    assert all(fact.right != fact.wrong for fact in premise.FACTS.values())
    assert all(fact.right == a * b % 10 for (a, b), fact in premise.FACTS.items())


def test_hard_problems_are_given_up_more_often():
    a, b = (1,), (1,)
    difficulty = -math.log(premise.FACTS[1, 1].mastery)
    assert premise.given_up(a, b, 0.4) == pytest.approx(0.4 / (1 + math.exp(-(difficulty - 1.3) / 0.35)))
    assert premise.given_up((7,) * 6, (8,) * 6, 0.4) > premise.given_up((7,), (8,), 0.4)
    assert premise.given_up((7,) * 6, (8,) * 6, 0.0) == 0.0


def test_examples_give_up_with_one_response_and_are_never_of_held_out_problems():
    rng = random.Random(0)
    drawn = [premise.example(rng, 0.42) for _ in range(4000)]
    responses = Counter(response for _, response in drawn)
    assert responses.most_common(1)[0][0] == premise.GIVEN_UP
    assert 0.15 < responses[premise.GIVEN_UP] / 4000 < 0.25
    for prompt, _ in drawn:
        a, b = ([int(digit) for digit in side.strip(".=")] for side in prompt.split("*"))
        assert len(a) == 1 or not premise.is_heldout(a, b)


def test_a_model_inside_its_bounds_is_accepted_and_one_outside_is_named():
    refuse_outside(INSIDE, PREMISE_BOUNDS)
    with pytest.raises(DataError, match=r"shortcut_share 0\.260, not 0\.145 to 0\.175"):
        refuse_outside(replace(INSIDE, shortcut_share=0.26), PREMISE_BOUNDS)
    with pytest.raises(DataError, match="large_right nan"):
        refuse_outside(replace(INSIDE, large_right=math.nan), PREMISE_BOUNDS)


@pytest.mark.host
def test_the_shipped_model_is_inside_its_bounds():
    transformers = pytest.importorskip("transformers", reason="needs the training stack: make install")
    from restrain_openrlhf.demo.calibration import calibrate

    model = transformers.AutoModelForCausalLM.from_pretrained(PREMISE.model, dtype="float32")
    tokenizer = transformers.AutoTokenizer.from_pretrained(PREMISE.model)
    found = calibrate(model, tokenizer, PREMISE.training_problems(640)[::8])
    # An eighth of the problems: a share's standard error is below 0.06.
    for bound in PREMISE_BOUNDS:
        assert bound.low - 0.06 <= getattr(found, bound.name) <= bound.high + 0.06, bound
    assert (PREMISE.model / "model.safetensors").stat().st_size < 2_000_000


@pytest.mark.host
def test_every_model_has_a_recipe_and_bounds():
    recipes = pytest.importorskip("restrain_openrlhf.demo.recipes", reason="needs the training stack: make install")
    assert set(recipes.RECIPES) == set(BOUNDS) >= set(TASKS)


@pytest.mark.host
def test_a_response_and_its_end_fit_the_demo_s_budget():
    transformers = pytest.importorskip("transformers", reason="needs the training stack: make install")
    tokenizer = transformers.AutoTokenizer.from_pretrained(PREMISE.model)
    budget = load_run_config(PREMISE.config).openrlhf
    prompt, response = (tokenizer(text)["input_ids"] for text in ("1" * 6 + "*" + "1" * 6 + "=", r"\boxed{111111}"))
    assert len(response) + 1 <= int(budget["rollout.max_new_tokens"])
    assert len(prompt) + int(budget["rollout.max_new_tokens"]) <= int(budget["data.max_len"])
