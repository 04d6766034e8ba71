"""What a user of `test-time` gets for bad input: one line and status 2, before anything heavy starts."""

import shutil

import pytest

from test_time.cli import main
from tests.command_line import call
from tests.conftest import ROOT

MODEL = ROOT / "restrain_openrlhf" / "data" / "demo_tasks" / "models" / "addition"
CPU = ROOT / "configs" / "cpu" / "test_time.yaml"
GOOD = [{"id": "a", "problem": "12+34="}, {"id": "b", "problem": "50+60="}]


@pytest.fixture
def refused(tmp_path, write_jsonl):
    """The error line of `test-time adapt` on these rows with these words."""
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")

    def run(rows, *words, model=MODEL):
        paths = ["--prompts", write_jsonl("p.jsonl", rows), "--out", tmp_path / "out"]
        config = [] if "--config" in words else ["--config", CPU]
        done = call(main, "adapt", "--model", model, *paths, *config, *words)
        assert done.returncode == 2, done.stderr
        assert not (tmp_path / "out" / "before.jsonl").exists()
        return done.stderr.splitlines()[-1]

    return run


@pytest.mark.parametrize(
    ("rows", "words", "message"),
    [
        ([{"id": 1, "problem": "x"}, {"id": 1, "problem": "y"}], (), "has ids more than once: '1'"),
        ([{"id": 1, "problem": "x"}, {"id": 2, "problem": "x"}], (), "hold the same prompt"),
        ([{"id": 1, "problem": ""}], (), "line 1: its prompt is empty"),
        ([], (), "has no problems"),
        ([*GOOD, {"id": "long", "problem": "1+" * 20}], (), "(id 'long'): 40"),
        (GOOD, ("--set", "openrlhf.data.apply_chat_template=true"), "the model's tokenizer has no chat template"),
        (GOOD, ("--method", "grpo_gold"), "learns from gold"),
        (GOOD, ("--method", "nonsense"), "'nonsense'"),
        (GOOD, ("--set", "openrlhf.eval.dataset=x.jsonl"), "eval.dataset is set, but gold is kept out"),
        (GOOD, ("--set", "openrlhf.data.max_samples=1"), "data.max_samples is 1, but all 2 problems"),
        (GOOD, ("--set", "openrlhf.train.bach_size=8"), "Did you mean 'openrlhf.train.batch_size'"),
        (GOOD, ("--set", "openrlhf.train.async_enable=true"), "seeded_rollouts and train.async_enable are set"),
        (GOOD, ("--set", "stop.kl=much"), "stop.kl is 'much'"),
    ],
)
def test_bad_input_is_refused_in_one_line(refused, rows, words, message):
    assert message in refused(rows, *words)


def test_gold_that_does_not_fit_is_told_before_training(refused, write_jsonl):
    gold = write_jsonl("gold.jsonl", [{"id": "a", "answer": "46"}])
    assert "has no answer for these ids: 'b'" in refused(GOOD, "--gold", gold)


def test_a_copy_of_a_model_that_was_cut_short(refused, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(MODEL, model)
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "1 of 1 weight files are missing or cut short (model.safetensors)" in refused(GOOD, model=model)
