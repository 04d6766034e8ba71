"""RESTRAIN's votes in TRL: a GRPOTrainer that trains on them, and keeps the penalty."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from trl import GRPOConfig, GRPOTrainer

from restrain_openrlhf.answers import AnswerKind
from restrain_openrlhf.errors import ConfigError, GroupError
from restrain_openrlhf.reference import Reference
from restrain_openrlhf.scoring.library import UNWEIGHTED, group_of, scorer_of
from restrain_openrlhf.scoring.scorer import GroupScorer, score_whole_group


class VotesGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's GRPOTrainer, trained on the votes' net advantages A⁺ + A⁻ unchanged, so that penalised groups keep −δ.

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
        self.votes = VoteReward.of(args, scorer_of(method, answers, reference))
        super().__init__(model=model, reward_funcs=self.votes, args=args, **more)

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        """TRL's rollouts (trainer/grpo_trainer.py), with our advantages in place of TRL's."""
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        output["advantages"] = torch.as_tensor(self.votes.last).to(output["advantages"])
        return output


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

    @classmethod
    def of(cls, args: GRPOConfig, scorer: GroupScorer) -> Self:
        """The reward function for these settings of TRL. Raises ConfigError for a method that TRL cannot serve."""
        n, method = args.num_generations, scorer.method
        needs = "gold answers" if method.reads_gold else "prompts that it chooses" if method.selection else None
        if needs or (method.rollouts is not None and method.rollouts.voters != n):
            raise ConfigError(
                f"The method {method.name!r} needs {needs or 'rollouts that it draws itself'}, which TRL does not "
                "provide. Train with `restrain train`, or choose another method."
            )
        if args.eval_strategy != "no":
            raise ConfigError(
                f"GRPOConfig has eval_strategy={args.eval_strategy!r}: rollouts of an evaluation would be voted on, "
                "not graded. Set it to 'no', and evaluate saved models with `restrain eval`."
            )
        return cls(scorer, n, args.max_completion_length or float("inf"))

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], completion_ids: Sequence[Any], **columns: Any
    ) -> Sequence[float]:
        """TRL's `reward_funcs`: one float for each completion. Raises GroupError if groups are not whole."""
        self._refuse_parts(prompts)
        names = self.scorer.kind.row_columns() & columns.keys()
        asked = (
            group_of(
                self.scorer,
                _text(prompts[first]),
                [_text(each) for each in completions[first : first + self.n]],
                [len(ids) >= self.limit for ids in completion_ids[first : first + self.n]],
                columns={name: columns[name][first] for name in names} or None,
            )
            for first in range(0, len(prompts), self.n)
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


def _text(prompt_or_completion: Any) -> str:
    """The text itself, or that of a conversation's last message."""
    return prompt_or_completion if isinstance(prompt_or_completion, str) else prompt_or_completion[-1]["content"]
