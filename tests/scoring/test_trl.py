"""The votes in TRL's own GRPOTrainer: advantages as scored reach its loss, and what would change them is refused."""

import math
from functools import partial
from types import SimpleNamespace

import pytest

pytest.importorskip("trl", reason="needs TRL: tests/scoring/test_in_their_own_folders.py runs this file with it")

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from restrain_openrlhf.answers import KINDS
from restrain_openrlhf.data.demo_tasks.tasks import PREMISE
from restrain_openrlhf.errors import ConfigError, GroupError
from restrain_openrlhf.scoring.library import scorer_of
from restrain_openrlhf.scoring.trl import VotesGRPOTrainer, refuse_other_training

N = 4
NO_PENALTY = {"name": "restrain", "prompt_weight": "online", "kappa": 0}


@pytest.fixture
def args(tmp_path):
    def make(**changed):
        settings = {
            "scale_rewards": "none",
            "num_generations": N,
            "per_device_train_batch_size": 4 * N,
            "max_completion_length": 10,
            "max_steps": 1,
            "learning_rate": 1e-3,
            "use_cpu": True,
            "bf16": False,
            "gradient_checkpointing": False,
            "report_to": "none",
            "save_strategy": "no",
            "disable_tqdm": True,
        }
        return GRPOConfig(output_dir=str(tmp_path), **{**settings, **changed})

    return make


def rewards_of(args, answers="math"):
    """The trainer's reward function, without a model."""
    return partial(VotesGRPOTrainer.restrain, SimpleNamespace(args=args, scorer=scorer_of(NO_PENALTY, answers)))


def test_rewards_are_the_net_advantages_of_whole_groups(args):
    reward = rewards_of(args())
    completions = [r"\boxed{7}"] * 3 + [r"\boxed{8}"] + ["38"] * 4
    logged = {}
    found = reward(["p"] * 4 + ["q"] * 4, completions, [[1]] * 8, log_metric=logged.__setitem__)
    # By hand, as in tests/scoring/test_verl.py, with torch's deviation, and g(3/4) = exp(-1/8) for the prompt.
    larger = 1 / (1 + math.exp(-(0.75**2 - 0.25**2) / 0.5))
    unit = (2 * larger - 1) / (0.5 + 1e-6) * math.exp(-1 / 8)
    assert found[:4] == pytest.approx([unit * right for right in (0.25, 0.25, 0.25, -0.75)], rel=1e-5)
    assert found[4:] == [0.0] * 4
    assert logged["restrain/majority_share"] == 7 / 8


def test_columns_of_gold_reach_no_vote(args):
    """TRL hands every column of its data set to a reward function."""
    seen = []

    class Witness(KINDS["text"]):
        def extract(self, response, row):
            seen.append(dict(row))
            return super().extract(response, row)

    gold = {"aliases": [["York"]] * N, "solution": ["York"] * N, "label": ["York"] * N}
    rewards_of(args(), Witness())(["p"] * N, ["York"] * N, [[1]] * N, **gold)
    assert seen
    assert "York" not in str(seen)


def test_a_response_of_the_longest_length_is_truncated(args):
    reward = rewards_of(args())
    found = reward(["p"] * 4, ["38"] * 4, [[1]] * 3 + [[1] * 10])
    assert found[3] < 0 < found[0]


def test_conversations_are_read_by_their_last_message(args):
    reward = rewards_of(args())
    prompts = [[{"role": "user", "content": "p"}]] * 4
    answers = [[{"role": "assistant", "content": text}] for text in (r"\boxed{7}", r"\boxed{7}", "7", r"\boxed{8}")]
    assert reward(prompts, answers, [[1]] * 4) == pytest.approx(
        reward(["p"] * 4, [each[0]["content"] for each in answers], [[1]] * 4)
    )


@pytest.mark.parametrize("prompts", [["p"] * 3, ["p", "p", "q", "q"], ["p"] * 4 + ["q"] * 2])
def test_a_group_that_is_not_whole_is_an_error(args, prompts):
    with pytest.raises(GroupError, match="are not the 4 generations of one prompt"):
        rewards_of(args())(prompts, ["38"] * len(prompts), [[1]] * len(prompts))


@pytest.mark.parametrize(
    ("method", "changed", "message"),
    [
        ("grpo_gold", {}, "needs gold answers"),
        ({"name": "ttrl", "votes": 64, "train_on": 4}, {}, "needs rollouts that it draws itself"),
        ({"name": "ttrl", "votes": 4, "train_on": 2}, {}, "needs rollouts that it draws itself"),
        ({"name": "rent", "rollouts": 4}, {}, "needs entropies of tokens"),
        ("ttrl_guard", {}, "needs a prompt's votes in earlier steps, which .* does not provide"),
        (
            {"name": "restrain", "prompt_weight": "none", "kappa": 5},
            {},
            "penalises even a unanimous group of 4 rollouts",
        ),
        (NO_PENALTY, {"eval_strategy": "steps"}, "would be voted on, not graded"),
    ],
)
def test_what_trl_cannot_serve_is_refused_before_training(args, method, changed, message):
    with pytest.raises(ConfigError, match=message):
        refuse_other_training(args(**changed), scorer_of(method).method)


@pytest.mark.parametrize("keeps", [True, False])
def test_a_penalised_group_moves_the_policy_where_its_penalty_is_kept(args, keeps, monkeypatch):
    """A real step of TRL's on groups of distinct answers: its own trainer subtracts their mean, and nothing is left."""
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(PREMISE.model, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(PREMISE.model, dtype=torch.float32)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    prompts = Dataset.from_list([{"prompt": problem.problem} for problem in PREMISE.training_set(8)])
    whole = {
        "args": args(weight_decay=0.0, scale_rewards="none"),
        "train_dataset": prompts,
        "processing_class": tokenizer,
    }
    own = {"name": "restrain", "prompt_weight": "none", "kappa": N}
    trainer = VotesGRPOTrainer(model, method={**own, "delta": 1.0}, **whole)
    monkeypatch.setattr("restrain_openrlhf.scoring.trl._text", lambda text: str(id(text)))
    if not keeps:
        trainer = GRPOTrainer(model, reward_funcs=trainer.restrain, **whole)
    trainer.train()
    moved = max(float((value - before[name]).abs().max()) for name, value in model.state_dict().items())
    assert set(trainer.state.log_history[-1]) >= {"train_loss"}
    assert (moved > 0) == keeps
