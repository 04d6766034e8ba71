"""Evaluations that the host leaves out where a run begins, over a trainer that says what was asked of it."""

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack (make install)")

from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.hook.install.environment import to_environment
from restrain_openrlhf.hook.run_log import evaluate_left_out, log_by_us
from restrain_openrlhf.method import parse_settings


class Trainer:
    """What is used of PPOTrainer; `asked` keeps the order."""

    def __init__(self, eval_steps, has_set=True):
        sampling = SimpleNamespace(steps=eval_steps, temperature=0.6, n_samples_per_prompt=4)
        logger, train = SimpleNamespace(logging_steps=1), SimpleNamespace(seed=42)
        self.args = SimpleNamespace(eval=sampling, logger=logger, train=train)
        self.wandb_logger = self.tensorboard_logger = self.experience_maker = None
        self.eval_dataloader = ["problems"] if has_set else None
        self.generate_kwargs = {"temperature": 1.0, "n_samples_per_prompt": 16, "top_p": 1.0}
        self.asked = []

    def broadcast_to_vllm(self):
        self.asked.append("weights to vLLM")

    def evaluate(self, step, **sampling):
        assert sampling == {"temperature": 0.6, "n_samples_per_prompt": 4, "top_p": 1.0}
        self.asked.append(step)
        self.wandb_logger.log_eval(step, {"eval_default_pass1": 0.5})


@pytest.fixture
def begin(monkeypatch, tmp_path):
    """Start at `step` with rows of these steps there; returns what was asked, and the steps that have a row then."""

    def begin(step, rows=(), eval_steps=2, has_set=True, **settings):
        made = HookConfig(method=parse_settings({"name": "ttrl"}), **{"metrics": tmp_path / "m.jsonl", **settings})
        for name, value in to_environment(made).items():
            monkeypatch.setenv(name, value)
        path = tmp_path / "evaluations.jsonl"
        row = {"eval_default_pass1": 0.1, "eval_num_samples": 8}
        path.write_text("".join(json.dumps({"step": done, **row}) + "\n" for done in rows))
        trainer = Trainer(eval_steps, has_set)
        log_by_us(trainer)
        evaluate_left_out(trainer, step)
        return trainer.asked, [json.loads(line)["step"] for line in path.read_text().splitlines()]

    return begin


def test_the_base_model_is_evaluated_once_where_that_is_asked_for(begin):
    assert begin(0, evaluate_first=True) == ([0], [0])
    assert begin(0, rows=[0], evaluate_first=True) == ([], [0])
    assert begin(0) == ([], [])


def test_a_checkpoint_whose_evaluation_was_cut_short_is_evaluated_with_its_own_weights(begin):
    assert begin(4, rows=[0, 2]) == (["weights to vLLM", 4], [0, 2, 4])


def test_a_checkpoint_that_has_been_evaluated_or_need_not_be_is_not(begin):
    assert begin(4, rows=[0, 2, 4]) == ([], [0, 2, 4])
    assert begin(3, rows=[0, 2]) == ([], [0, 2])
    assert begin(4, rows=[0, 2], eval_steps=float("inf")) == ([], [0, 2])


def test_without_problems_or_a_file_to_keep_them_in_nothing_is_evaluated_again(begin):
    assert begin(4, rows=[], has_set=False, evaluate_first=True) == ([], [])
    assert begin(4, rows=[], metrics=None) == ([], [])
