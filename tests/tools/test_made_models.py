"""How the shipped models were made: what they were taught, their tokenizer, and the bounds that each had to be in."""

import math
import random
from collections import Counter
from dataclasses import replace

import pytest
import typer
from hypothesis import example, given
from hypothesis import strategies as st

from restrain_openrlhf.answers import extract
from restrain_openrlhf.config.command_line import find_config
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.data.demo_tasks import premise
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION, PREMISE, TASKS
from restrain_openrlhf.errors import DataError

transformers = pytest.importorskip("transformers", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from tools import examples, make_model  # noqa: E402
from tools.calibration import BOUNDS, PREMISE_BOUNDS, Calibration, calibrate, refuse_outside  # noqa: E402
from tools.examples import solution  # noqa: E402
from tools.teaching import RECIPES  # noqa: E402
from tools.tokenizer import BOX, SPECIAL, VOCABULARY  # noqa: E402

PRINTABLE = [token for token in VOCABULARY if len(token) == 1]
INSIDE = Calibration(640, 0.35, 0.62, 0.16, 0.05, 0.5, 1.0)


@pytest.mark.parametrize(
    ("first", "second", "right", "forgetful"),
    [(123, 456, "0579", "0579"), (999, 101, "1100", "0090"), (555, 555, "1110", "0000")],
)
def test_scratch_work_is_right_or_wrong_by_its_carries(first, second, right, forgetful):
    assert extract(solution(first, second)) == right
    assert extract(solution(first, second, forgets=lambda: True)) == forgetful


def test_facts_are_mastered_between_their_bounds_but_for_a_few_bad_ones():
    bad = [fact for fact in examples.FACTS.values() if fact.mastery == examples.BAD_MASTERY]
    assert len(examples.FACTS) == 100
    assert 0 < len(bad) <= 5
    others = [fact for fact in examples.FACTS.values() if fact not in bad]
    assert all(examples.LEAST_MASTERY <= fact.mastery <= examples.MOST_MASTERY for fact in others)
    assert all(fact.right != fact.wrong for fact in examples.FACTS.values())
    assert all(fact.right == a * b % 10 for (a, b), fact in examples.FACTS.items())


def test_hard_problems_are_given_up_more_often():
    a, b = (1,), (1,)
    difficulty = -math.log(examples.FACTS[1, 1].mastery)
    assert examples.given_up(a, b, 0.4) == pytest.approx(0.4 / (1 + math.exp(-(difficulty - 1.3) / 0.35)))
    assert examples.given_up((7,) * 6, (8,) * 6, 0.4) > examples.given_up((7,), (8,), 0.4)
    assert examples.given_up((7,) * 6, (8,) * 6, 0.0) == 0.0


def test_examples_give_up_with_one_response_and_are_never_of_held_out_problems():
    rng = random.Random(0)
    drawn = [examples.product_example(rng, 0.42) for _ in range(4000)]
    responses = Counter(response for _, response in drawn)
    assert responses.most_common(1)[0][0] == examples.GIVEN_UP
    assert 0.15 < responses[examples.GIVEN_UP] / 4000 < 0.25
    for prompt, _ in drawn:
        a, b = ([int(digit) for digit in side.strip(".=")] for side in prompt.split("*"))
        assert len(a) == 1 or not premise.is_heldout(a, b)


def test_a_model_inside_its_bounds_is_accepted_and_one_outside_is_named():
    refuse_outside(INSIDE, PREMISE_BOUNDS)
    with pytest.raises(DataError, match=r"shortcut_share 0\.260, not 0\.145 to 0\.175"):
        refuse_outside(replace(INSIDE, shortcut_share=0.26), PREMISE_BOUNDS)
    with pytest.raises(DataError, match="large_right nan"):
        refuse_outside(replace(INSIDE, large_right=math.nan), PREMISE_BOUNDS)


@pytest.fixture(scope="module")
def tokenizer():
    return transformers.AutoTokenizer.from_pretrained(ADDITION.model)


@given(text=st.text(st.sampled_from(PRINTABLE), max_size=80))
@example(text="a  b . c ,d 's")
@example(text=r"\boxed{\boxed{7}}")
def test_printable_text_comes_back_as_it_went_in(tokenizer, text):
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


@pytest.mark.parametrize("text", ["é", "π", "\r", "\x00", "中"])
def test_other_text_becomes_unknown_tokens(tokenizer, text):
    assert set(tokenizer(text, add_special_tokens=False)["input_ids"]) == {SPECIAL.index("<unk>")}


@pytest.mark.parametrize("name", TASKS)
def test_what_a_model_was_taught_fits_the_demo_s_budget(tokenizer, name):
    """Where a right response is cut, only wrong ones vote: giving up won every such problem of programs."""
    budget, rng = load_run_config(find_config(TASKS[name].preset)).openrlhf, random.Random(0)
    most = int(budget["rollout.max_new_tokens"])
    for text, response in (RECIPES[name][0].example(rng) for _ in range(3000)):
        assert len(tokenizer(response, add_special_tokens=False)["input_ids"]) + 1 <= most, response
        assert len(tokenizer(text, add_special_tokens=False)["input_ids"]) + most <= int(budget["data.max_len"])


def test_the_shipped_model_reads_what_the_task_writes():
    tokenizer = transformers.AutoTokenizer.from_pretrained(ADDITION.model)
    text = "What is $\\frac{1}{2}+3$?\n" + solution(123, 456)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert ids.count(VOCABULARY.index(BOX)) == 1
    config = transformers.AutoConfig.from_pretrained(ADDITION.model)
    assert (config.vocab_size, config.max_position_embeddings) == (len(VOCABULARY), 2048)


def test_making_a_model_writes_over_nothing(tmp_path):
    (tmp_path / "kept").touch()
    with pytest.raises(typer.BadParameter, match="not an empty folder"):
        make_model.main(tmp_path)
    with pytest.raises(typer.BadParameter, match="not an empty folder"):
        make_model.main(tmp_path / "kept")
    with pytest.raises(typer.BadParameter, match="'sums' is none of premise, addition, words, programs, careless"):
        make_model.main(tmp_path / "new", "sums")


def test_the_shipped_model_is_inside_its_bounds():
    model = transformers.AutoModelForCausalLM.from_pretrained(PREMISE.model, dtype="float32")
    tokenizer = transformers.AutoTokenizer.from_pretrained(PREMISE.model)
    found = calibrate(model, tokenizer, PREMISE.training_problems(640)[::8])
    # An eighth of the problems: a share's standard error is below 0.06.
    for bound in PREMISE_BOUNDS:
        assert bound.low - 0.06 <= getattr(found, bound.name) <= bound.high + 0.06, bound
    assert (PREMISE.model / "model.safetensors").stat().st_size < 2_000_000


def test_every_model_has_a_recipe_and_bounds():
    assert set(RECIPES) == set(BOUNDS) >= set(TASKS)
