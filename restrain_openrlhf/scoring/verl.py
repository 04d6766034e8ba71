"""RESTRAIN's votes in verl: a reward manager that gathers a prompt's rollouts, and an advantage estimator for them.

With `reward.reward_manager.module.path=pkg://restrain_openrlhf.scoring.verl`, verl imports this module in its reward
worker and in its trainer. The import registers the advantage estimator `restrain`.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl import DataProto
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase
from verl.trainer.ppo.core_algos import register_adv_est

from restrain_openrlhf.config.yaml_file import load_hook_config
from restrain_openrlhf.errors import ConfigError, GroupError, RestrainError
from restrain_openrlhf.method import GroupScore, build
from restrain_openrlhf.scoring.library import group_of, refuse_unserved
from restrain_openrlhf.scoring.scorer import GroupScorer, score_whole_group

ESTIMATOR = "restrain"
# Keys of verl's configuration, the values that they must have, and what another value would do.
NEEDED = (
    ("algorithm", "adv_estimator", ESTIMATOR, "it would rescale advantages, or subtract each group's mean"),
    ("algorithm", "use_kl_in_reward", False, "KL would be added to advantages (actor.use_kl_loss is for KL)"),
    ("reward", "num_workers", 1, "verl spreads a prompt's rollouts over workers, and none would have a whole group"),
    ("trainer", "test_freq", -1, "rollouts of a validation would be voted on (`restrain eval` grades saved models)"),
    ("trainer", "val_before_train", False, "rollouts of a validation would be voted on"),
)
# verl would wait forever for the group of a rollout that has failed.
PATIENCE_SECONDS = 3600.0


@register_adv_est(ESTIMATOR)  # type: ignore[untyped-decorator]
def unscaled_net_advantages(token_level_rewards: Any, response_mask: Any, **_: Any) -> tuple[Any, Any]:
    """Each rollout's net advantage on all of its tokens, (batch, tokens), without a baseline and unscaled."""
    advantages = token_level_rewards.sum(dim=-1, keepdim=True) * response_mask
    return advantages, advantages


@dataclass
class Gathering:
    """The rollouts of one prompt that have arrived so far, and the score that their n calls wait for."""

    score: asyncio.Future[GroupScore]
    texts: list[str] = field(default_factory=list)
    truncated: list[bool] = field(default_factory=list)


class VoteRewardManager(RewardManagerBase):  # type: ignore[misc]
    """A rollout's reward is its net advantage A⁺ + A⁻, u_x included, once the n rollouts of its prompt have come.

    `+reward.restrain=FILE` names a YAML file with `method:` and the other keys that the agent reads. Raises ConfigError
    for settings of verl that would split groups or change their advantages.
    """

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **_: Any) -> None:
        super().__init__(config, tokenizer, compute_score)
        refuse_other_training(config)
        ours = load_hook_config(Path(config.reward.restrain))
        self.n = config.actor_rollout_ref.rollout.n
        refuse_unserved(build(ours.method), self.n, "verl")
        self.scorer = GroupScorer.by(ours.method, ours.reference, ours.answers, None)
        self.gathered: dict[str, Gathering] = {}

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """verl's call for one rollout. Raises GroupError if the other rollouts of its prompt do not arrive."""
        item = data[-1]
        prompt, response = (self._ids(item, name) for name in ("prompts", "responses"))
        own, uid = item.non_tensor_batch, str(item.non_tensor_batch["uid"])
        group = self.gathered.setdefault(uid, Gathering(self.loop.create_future()))
        place = len(group.texts)
        group.texts.append(self.tokenizer.decode(response, skip_special_tokens=True))
        group.truncated.append(len(response) >= self.config.data.max_response_length)
        if len(group.texts) == self.n:
            del self.gathered[uid]
            columns = own.get("extra_info") or {}
            asked = group_of(self.scorer, self.tokenizer.decode(prompt), group.texts, group.truncated, columns=columns)
            try:
                group.score.set_result(await asyncio.to_thread(score_whole_group, self.scorer, asked))
            except RestrainError as error:
                group.score.set_exception(error)
        try:
            score = await asyncio.wait_for(asyncio.shield(group.score), PATIENCE_SECONDS)
        except TimeoutError:
            raise GroupError(
                f"Of {self.n} rollouts of a prompt only {len(group.texts)} arrived within {PATIENCE_SECONDS:.0f} s: "
                "one failed. Look for its error in verl's log, and start the run again from its last checkpoint."
            ) from None
        numbers = {"majority_share": score.votes.majority_count / self.n, "penalized": float(score.penalized)}
        return {"reward_score": float(score.pair.net[place]), "reward_extra_info": numbers}

    @staticmethod
    def _ids(item: Any, name: str) -> list[int]:
        """The tokens without padding: a prompt is padded on its left, a response on its right."""
        ids, mask = item.batch[name], item.batch["attention_mask"]
        own = mask[: len(ids)] if name == "prompts" else mask[-len(ids) :]
        found: list[int] = ids[own.bool()].tolist()
        return found


def refuse_other_training(config: Any) -> None:
    """Raises ConfigError naming the key of verl's configuration, and what to set."""
    if not config.reward.get("restrain"):
        raise ConfigError("reward.restrain is not set. Add +reward.restrain=FILE, a YAML file with `method:`.")
    for block, key, needed, otherwise in NEEDED:
        if (found := config[block].get(key, needed)) != needed:
            raise ConfigError(f"{block}.{key} is {found!r}: {otherwise}. Set it to {needed}.")
