"""RESTRAIN's votes in TRL: a reward function for TRL's GRPOTrainer, and a GRPOTrainer that keeps the penalty."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from trl import GRPOConfig, GRPOTrainer

from restrain_openrlhf.answers import AnswerKind
from restrain_openrlhf.errors import ConfigError, GroupError
from restrain_openrlhf.method import Method, PromptFacts, ReferenceVote
from restrain_openrlhf.reference import Reference
from restrain_openrlhf.scoring.library import UNWEIGHTED, group_of, scorer_of
from restrain_openrlhf.scoring.scorer import GroupScorer, score_whole_group

# A mean below this is the rounding error of float64 sums.
NO_MEAN = 1e-9


@dataclass
class VoteReward:
    """A reward function as TRL calls it: a rollout's reward is its net advantage A⁺ + A⁻, u_x included.

    A response of `limit` tokens counts as truncated, so it has no answer. `last` holds the rewards of the last call in
    this process.
    """

    scorer: GroupScorer
    n: int
    limit: float
    last: Sequence[float] = field(default=(), init=False)
    # TRL uses this name in its metrics.
    __name__ = "restrain"

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], completion_ids: Sequence[Any], **columns: Any
    ) -> Sequence[float]:
        """TRL's `reward_funcs`: one float for each completion. Raises GroupError if groups are not whole."""
        self._refuse_parts(prompts)
        names = self.scorer.kind.row_columns() & columns.keys()
        groups = [slice(first, first + self.n) for first in range(0, len(prompts), self.n)]
        asked = (
            group_of(
                self.scorer,
                _text(prompts[group.start]),
                [_text(each) for each in completions[group]],
                [len(ids) >= self.limit for ids in completion_ids[group]],
                columns={name: columns[name][group.start] for name in names} or None,
            )
            for group in groups
        )
        scores = [score_whole_group(self.scorer, group) for group in asked]
        if log := columns.get("log_metric"):
            log("restrain/majority_share", sum(score.votes.majority_count for score in scores) / len(prompts))
            log("restrain/penalized", sum(score.penalized for score in scores) / len(scores))
            log("restrain/prompt_weight", sum(score.prompt_weight for score in scores) / len(scores))
        self.last = [net for score in scores for net in score.pair.net.tolist()]
        return self.last

    def _refuse_parts(self, prompts: Sequence[Any]) -> None:
        """Raises GroupError unless every n rows in turn are the generations of one prompt.

        TRL puts the generations of a prompt side by side, and then deals the rows out to its processes.
        """
        for first in range(0, len(prompts), self.n):
            group = prompts[first : first + self.n]
            if len(group) < self.n or any(prompt != group[0] for prompt in group):
                raise GroupError(
                    f"TRL hands out {len(prompts)} completions, but rows {first} to {first + len(group) - 1} are not "
                    f"the {self.n} generations of one prompt. Make per_device_train_batch_size * steps_per_generation "
                    f"a multiple of num_generations = {self.n}, so that no group is spread over processes."
                )


def vote_reward(
    args: GRPOConfig,
    method: str | Mapping[str, Any] = UNWEIGHTED,
    answers: str | Mapping[str, Any] | AnswerKind = "math",
    reference: str | Path | Reference | None = None,
) -> VoteReward:
    """The reward function for `GRPOTrainer(reward_funcs=vote_reward(args, …), args=args)`.

    Raises ConfigError if TRL would change the method's advantages: it subtracts the group's mean reward, and by
    default divides by the group's standard deviation.
    """
    if args.scale_rewards != "none" or args.multi_objective_aggregation != "sum_then_normalize":
        raise ConfigError(
            f"GRPOConfig has scale_rewards={args.scale_rewards!r} and "
            f"multi_objective_aggregation={args.multi_objective_aggregation!r}, so that TRL would scale every group "
            "to the same deviation; the effect of u_x and of soft labels would be lost. Set scale_rewards='none' and "
            "leave the other out."
        )
    reward = _reward(args, method, answers, reference)
    if has_penalties(reward.scorer.method, reward.n):
        raise ConfigError(
            f"The method {reward.scorer.method.name!r} penalises whole groups or missing answers, but GRPOTrainer "
            "subtracts each group's mean reward, which removes the penalty. Use VotesGRPOTrainer, which keeps it, or "
            "train without the penalty: kappa: 0 and missing: exclude."
        )
    return reward


class VotesGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's GRPOTrainer, trained on the votes' net advantages unchanged, so that penalised groups keep −δ.

    `method`, `answers` and `reference` take the place of `reward_funcs`; all other arguments are TRL's. Raises
    ConfigError for settings under which something other than the votes would be trained on.
    """

    def __init__(
        self,
        model: Any,
        *,
        args: GRPOConfig,
        method: str | Mapping[str, Any] = UNWEIGHTED,
        answers: str | Mapping[str, Any] | AnswerKind = "math",
        reference: str | Path | Reference | None = None,
        **more: Any,
    ) -> None:
        self.votes = _reward(args, method, answers, reference)
        super().__init__(model=model, reward_funcs=self.votes, args=args, **more)

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        """TRL's rollouts (trainer/grpo_trainer.py), with our advantages in place of TRL's."""
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        output["advantages"] = torch.as_tensor(self.votes.last).to(output["advantages"])
        return output


def has_penalties(method: Method, n: int) -> bool:
    """Whether the method has penalties, which a group baseline would remove.

    Without penalties the mean advantage of every group is 0, and subtracting it changes nothing.
    """
    facts = PromptFacts(ReferenceVote(n, n), stored_class=0, gold_class=0, entropies=(1.0,) * n)
    groups: tuple[list[int | None], ...] = (list(range(n)), [*range(n - 1), None], [0] * (n - 1) + [None])
    return any(abs(method.score(group, facts).pair.net.mean()) > NO_MEAN for group in groups)


def _reward(
    args: GRPOConfig,
    method: str | Mapping[str, Any],
    answers: str | Mapping[str, Any] | AnswerKind,
    reference: str | Path | Reference | None,
) -> VoteReward:
    scorer = scorer_of(method, answers, reference)
    n, chosen = args.num_generations, scorer.method
    needs = "gold answers" if chosen.reads_gold else "prompts that it chooses" if chosen.selection else None
    if needs or (chosen.rollouts is not None and chosen.rollouts.voters != n):
        raise ConfigError(
            f"The method {chosen.name!r} needs {needs or 'rollouts that it draws itself'}, which TRL does not "
            "provide. Train with `restrain train`, or choose another method."
        )
    if args.eval_strategy != "no":
        raise ConfigError(
            f"GRPOConfig has eval_strategy={args.eval_strategy!r}: rollouts of an evaluation would be voted on, not "
            "graded. Set it to 'no', and evaluate saved models with `restrain eval`."
        )
    return VoteReward(scorer, n, args.max_completion_length or float("inf"))


def _text(prompt_or_completion: Any) -> str:
    """The text itself, or that of a conversation's last message."""
    return prompt_or_completion if isinstance(prompt_or_completion, str) else prompt_or_completion[-1]["content"]
