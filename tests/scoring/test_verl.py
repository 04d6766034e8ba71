"""The votes in verl's own reward loop: groups whole whatever the order, advantages as scored, settings refused."""

import asyncio

import numpy as np
import pytest

pytest.importorskip("verl", reason="needs verl: tests/scoring/test_in_their_own_folders.py runs this file with it")

import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from transformers import AutoTokenizer
from verl import DataProto
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.reward import load_reward_manager

from restrain_openrlhf.data.demo_tasks.tasks import PREMISE
from restrain_openrlhf.errors import ConfigError, GroupError
from restrain_openrlhf.scoring import library

N, LONGEST = 4, 5
# Three votes of four, and four distinct answers, which RESTRAIN penalises by -1.
AGREED, APART = ["38", "38", "37", "38"], ["1", "3", "5", "7"]


@pytest.fixture
def tokenizer():
    return AutoTokenizer.from_pretrained(PREMISE.model)


@pytest.fixture
def settings(tmp_path):
    """verl's configuration, as far as its reward loop reads it, with one key of it changed."""
    (tmp_path / "method.yaml").write_text("method: {name: restrain, prompt_weight: none, std: population, eps: 0}\n")
    manager = {
        "source": "importlib",
        "name": "VoteRewardManager",
        "module": {"path": "pkg://restrain_openrlhf.scoring.verl"},
    }
    reward = {"restrain": str(tmp_path / "method.yaml"), "num_workers": 1, "reward_manager": manager}

    def make(key=None, value=None):
        config = OmegaConf.create(
            {
                "reward": {**reward, "custom_reward_function": {"path": None}, "sandbox_fusion": None},
                "algorithm": {"adv_estimator": "restrain"},
                "trainer": {"test_freq": -1, "val_before_train": False},
                "data": {"max_response_length": LONGEST},
                "actor_rollout_ref": {"rollout": {"n": N}},
            }
        )
        if key is not None:
            OmegaConf.update(config, key, value)
        return config

    return make


def rollout(tokenizer, prompt, response, uid, extra=()):
    """One rollout as verl's agent loop sends it to the reward loop (experimental/agent_loop/agent_loop.py)."""
    parts = [torch.tensor(tokenizer(text)["input_ids"]) for text in (prompt, response)]
    ids = torch.cat(parts)
    batch = {"prompts": parts[0], "responses": parts[1], "attention_mask": torch.ones_like(ids), "input_ids": ids}
    own = {"uid": uid, "extra_info": dict(extra), "data_source": "", "reward_model": {"ground_truth": "never read"}}
    return DataProto(
        batch=TensorDict({name: value[None] for name, value in batch.items()}, batch_size=1),
        non_tensor_batch={name: np.array([value], dtype=object) for name, value in own.items()},
    )


def scored(config, tokenizer, rollouts):
    async def run():
        manager = load_reward_manager(config, tokenizer, reward_router_address=None, reward_model_tokenizer=None)
        return type(manager), await asyncio.gather(*(manager.run_single(each) for each in rollouts))

    return asyncio.run(run())


def test_groups_are_scored_whole_though_their_rollouts_come_mixed_and_verl_keeps_their_advantages(settings, tokenizer):
    mixed = [pair for both in zip(AGREED, APART, strict=True) for pair in zip(both, "ab", strict=True)]
    rollouts = [rollout(tokenizer, "12....*34....=", answer, uid) for answer, uid in mixed]
    manager, replies = scored(settings(), tokenizer, rollouts)
    # By hand: shares 3/4 and 1/4 have one deviation, sqrt(3)/4; the larger weight is g(.75)/(g(.75) + g(.25)).
    larger = 1 / (1 + np.exp(-(0.75**2 - 0.25**2) / 2 / 0.5**2))
    unit = (2 * larger - 1) / (np.sqrt(3) / 4)
    expected = [number for right in (0.25, 0.25, -0.75, 0.25) for number in (right * unit, -1.0)]
    assert [reply["reward_score"] for reply in replies] == pytest.approx(expected)
    assert [reply["reward_extra_info"]["penalized"] for reply in replies] == [0, 1] * N

    responses = torch.nn.utils.rnn.pad_sequence([each.batch["responses"][0] for each in rollouts], batch_first=True)
    mask, prompts = (responses != 0).long(), torch.stack([each.batch["prompts"][0] for each in rollouts])
    tensors = {
        "prompts": prompts,
        "responses": responses,
        "response_mask": mask,
        "attention_mask": torch.cat([torch.ones_like(prompts), mask], 1),
    }
    data = DataProto(TensorDict(tensors, batch_size=8), {"uid": np.array([uid for _, uid in mixed], dtype=object)})
    data.batch["token_level_rewards"] = manager.assemble_rm_scores(data, [reply["reward_score"] for reply in replies])
    kept = compute_advantage(data, "restrain").batch["advantages"]
    assert kept.numpy() == pytest.approx(np.array(expected)[:, None] * mask.numpy(), abs=1e-6)
    # verl's own estimator takes the penalty away: what the refusal below is for.
    own = compute_advantage(data, "grpo", norm_adv_by_std_in_grpo=False).batch["advantages"]
    assert own[1::2].abs().max() == 0


def test_columns_of_gold_reach_no_vote(settings, tokenizer, monkeypatch):
    seen, ours = [], library.group_of

    def group_of(*given, **named):
        asked = ours(*given, **named)
        seen.append(asked)
        return asked

    monkeypatch.setattr("restrain_openrlhf.scoring.verl.group_of", group_of)
    gold = {"answer": "secret", "solution": "secret", "aliases": ["secret"], "index": 3}
    scored(settings(), tokenizer, [rollout(tokenizer, "1.....*2.....=", "2", "a", gold) for _ in range(N)])
    assert seen
    assert "secret" not in str(seen)


def test_a_response_of_the_longest_length_counts_as_truncated(settings, tokenizer):
    rollouts = [rollout(tokenizer, "1.....*2.....=", text, "a") for text in ["38", "38", "38", "38383"]]
    _, replies = scored(settings(), tokenizer, rollouts)
    assert [reply["reward_extra_info"]["majority_share"] for reply in replies] == [3 / 4] * N


def test_a_rollout_that_never_comes_is_an_error(settings, tokenizer, monkeypatch):
    monkeypatch.setattr("restrain_openrlhf.scoring.verl.PATIENCE_SECONDS", 0.1)
    with pytest.raises(GroupError, match="Of 4 rollouts of a prompt only 3 arrived within 0 s"):
        scored(settings(), tokenizer, [rollout(tokenizer, "1.....*2.....=", "2", "a") for _ in range(3)])


def test_an_error_in_scoring_reaches_every_rollout_of_the_group(settings, tokenizer, monkeypatch):
    def fails(*_):
        raise GroupError("what was wrong")

    monkeypatch.setattr("restrain_openrlhf.scoring.verl.score_whole_group", fails)

    async def run():
        manager = load_reward_manager(settings(), tokenizer, reward_router_address=None, reward_model_tokenizer=None)
        rollouts = [rollout(tokenizer, "1.....*2.....=", "2", "a") for _ in range(N)]
        return await asyncio.gather(*(manager.run_single(each) for each in rollouts), return_exceptions=True)

    assert [str(error) for error in asyncio.run(asyncio.wait_for(run(), 60))] == ["what was wrong"] * N


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("reward.restrain", None, "reward.restrain is not set"),
        ("algorithm.adv_estimator", "grpo", "Set it to restrain"),
        ("reward.num_workers", 8, "reward.num_workers is 8"),
        ("trainer.test_freq", 5, "trainer.test_freq"),
        ("trainer.val_before_train", True, "trainer.val_before_train"),
        ("algorithm.use_kl_in_reward", True, "use_kl_in_reward is True"),
    ],
)
def test_settings_of_verl_under_which_votes_would_be_lost_are_refused(settings, tokenizer, key, value, message):
    with pytest.raises(ConfigError, match=message):
        load_reward_manager(settings(key, value), tokenizer, reward_router_address=None, reward_model_tokenizer=None)


@pytest.mark.parametrize("method", ["srt_easy", "restrain, prompt_weight: none, gold: where_given"])
def test_a_method_that_needs_more_than_rollouts_is_refused(settings, tokenizer, tmp_path, method):
    config = settings()
    (tmp_path / "method.yaml").write_text(f"method: {{name: {method}}}\n")
    with pytest.raises(ConfigError, match=r"needs (prompts that it chooses|gold answers), which verl does not provide"):
        load_reward_manager(config, tokenizer, reward_router_address=None, reward_model_tokenizer=None)
