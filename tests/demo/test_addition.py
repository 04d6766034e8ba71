"""The demo's task: seeded, without overlap, and without gold where it must not be; the shipped model fits it."""

import json

import pytest
import typer
from hypothesis import example, given
from hypothesis import strategies as st

from restrain_openrlhf.answers import extract
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.demo.addition import MOST_PROBLEMS, heldout_problems, solution, training_problems
from restrain_openrlhf.demo.problems import write_gold, write_prompts
from restrain_openrlhf.demo.tasks import ADDITION
from restrain_openrlhf.demo.tokenizer import BOX, SPECIAL, VOCABULARY
from restrain_openrlhf.errors import DataError
from tests.conftest import ROOT

PRINTABLE = [token for token in VOCABULARY if len(token) == 1]


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


def test_the_held_out_file_has_gold(tmp_path):
    write_gold(tmp_path / "h.jsonl", heldout_problems(3))
    rows = [json.loads(line) for line in (tmp_path / "h.jsonl").read_text().splitlines()]
    assert [row["answer"] for row in rows] == [problem.answer for problem in heldout_problems(3)]


@pytest.fixture(scope="module")
def tokenizer():
    return pytest.importorskip(
        "transformers", reason="needs the training stack: make install"
    ).AutoTokenizer.from_pretrained(ADDITION.model)


@pytest.mark.host
@given(text=st.text(st.sampled_from(PRINTABLE), max_size=80))
@example(text="a  b . c ,d 's")
@example(text=r"\boxed{\boxed{7}}")
def test_printable_text_comes_back_as_it_went_in(tokenizer, text):
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


@pytest.mark.host
@pytest.mark.parametrize("text", ["é", "π", "\r", "\x00", "中"])
def test_other_text_becomes_unknown_tokens(tokenizer, text):
    assert set(tokenizer(text, add_special_tokens=False)["input_ids"]) == {SPECIAL.index("<unk>")}


@pytest.mark.host
def test_a_response_and_its_end_fit_the_demo_s_budget(tokenizer):
    budget = load_run_config(ROOT / "configs" / "cpu" / "demo_addition.yaml").openrlhf
    prompt, response = (tokenizer(text)["input_ids"] for text in ("999+999=", solution(999, 999)))
    assert len(response) + 1 <= int(budget["rollout.max_new_tokens"])
    assert len(prompt) + int(budget["rollout.max_new_tokens"]) <= int(budget["data.max_len"])


@pytest.mark.host
def test_the_shipped_model_loads_and_has_its_documented_size():
    transformers = pytest.importorskip("transformers", reason="needs the training stack: make install")
    model = transformers.AutoModelForCausalLM.from_pretrained(ADDITION.model)
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert model.num_parameters() == 800_896
    assert (ADDITION.model / "model.safetensors").stat().st_size < 2_000_000


@pytest.mark.host
def test_making_a_model_writes_over_nothing(tmp_path):
    make_model = pytest.importorskip(
        "restrain_openrlhf.demo.make_model", reason="needs the training stack: make install"
    )
    (tmp_path / "kept").touch()
    with pytest.raises(typer.BadParameter, match="not an empty folder"):
        make_model.main(tmp_path)
    with pytest.raises(typer.BadParameter, match="not an empty folder"):
        make_model.main(tmp_path / "kept")
    with pytest.raises(typer.BadParameter, match="'sums' is none of premise, addition, careless"):
        make_model.main(tmp_path / "new", "sums")


@pytest.mark.host
def test_the_shipped_model_reads_what_the_task_writes():
    transformers = pytest.importorskip("transformers", reason="needs the training stack: make install")
    tokenizer = transformers.AutoTokenizer.from_pretrained(ADDITION.model)
    text = "What is $\\frac{1}{2}+3$?\n" + solution(123, 456)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert ids.count(VOCABULARY.index(BOX)) == 1
    config = transformers.AutoConfig.from_pretrained(ADDITION.model)
    assert (config.vocab_size, config.max_position_embeddings) == (len(VOCABULARY), 2048)
