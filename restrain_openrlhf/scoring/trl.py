"""RESTRAIN's votes in TRL: a GRPOTrainer that trains on them, and keeps the penalty."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from trl import GRPOConfig, GRPOTrainer

from restrain_openrlhf.answers import AnswerKind
from restrain_openrlhf.errors import ConfigError, GroupError
from restrain_openrlhf.method import Method
from restrain_openrlhf.reference import Reference
from restrain_openrlhf.scoring.library import UNWEIGHTED, group_of, refuse_unserved, scorer_of
from restrain_openrlhf.scoring.scorer import score_whole_group


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
        self.scorer = scorer_of(method, answers, reference)
        refuse_other_training(args, self.scorer.method)
        super().__init__(model=model, reward_funcs=self.restrain, args=args, **more)

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        """TRL's rollouts (trainer/grpo_trainer.py), with our advantages in place of TRL's."""
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        output["advantages"] = torch.as_tensor(self.rewards).to(output["advantages"])
        return output

    def restrain(
        self, prompts: Sequence[Any], completions: Sequence[Any], completion_ids: Sequence[Any], **columns: Any
    ) -> Sequence[float]:
        """TRL's `reward_funcs`: the net advantage of each completion, u_x included, which `rewards` keeps.

        A response of `max_completion_length` tokens counts as truncated, so it has no answer. TRL uses the name of this
        method in its metrics. Raises GroupError if groups are not whole.
        """
        n, limit = self.args.num_generations, self.args.max_completion_length or float("inf")
        refuse_parts(prompts, n)
        names = self.scorer.kind.row_columns() & columns.keys()
        asked = (
            group_of(
                self.scorer,
                _text(prompts[first]),
                [_text(each) for each in completions[first : first + n]],
                [len(ids) >= limit for ids in completion_ids[first : first + n]],
                columns={name: columns[name][first] for name in names} or None,
            )
            for first in range(0, len(prompts), n)
        )
        scores = [score_whole_group(self.scorer, group) for group in asked]
        if log := columns.get("log_metric"):
            log("restrain/majority_share", sum(score.votes.majority_count for score in scores) / len(prompts))
            log("restrain/penalized", sum(score.penalized for score in scores) / len(scores))
            log("restrain/prompt_weight", sum(score.prompt_weight for score in scores) / len(scores))
        self.rewards = [net for score in scores for net in score.pair.net.tolist()]
        return self.rewards


def refuse_other_training(args: GRPOConfig, method: Method) -> None:
    """Raises ConfigError for a method that TRL cannot serve, and for evaluation during training."""
    refuse_unserved(method, args.num_generations, "TRL")
    if args.eval_strategy != "no":
        raise ConfigError(
            f"GRPOConfig has eval_strategy={args.eval_strategy!r}: rollouts of an evaluation would be voted on, not "
            "graded. Set it to 'no', and evaluate saved models with `restrain eval`."
        )


def refuse_parts(prompts: Sequence[Any], n: int) -> None:
    """Raises GroupError unless every n rows in turn are the generations of one prompt.

    TRL puts the generations of a prompt side by side, and then deals the rows out to its processes.
    """
    for first in range(0, len(prompts), n):
        group = prompts[first : first + n]
        if len(group) < n or any(prompt != group[0] for prompt in group):
            raise GroupError(
                f"TRL hands out {len(prompts)} completions, but rows {first} to {first + len(group) - 1} are not the "
                f"{n} generations of one prompt. Make per_device_train_batch_size * steps_per_generation a multiple of "
                f"num_generations = {n}, so that no group is spread over processes."
            )


def _text(prompt_or_completion: Any) -> str:
    """The text itself, or that of a conversation's last message."""
    return prompt_or_completion if isinstance(prompt_or_completion, str) else prompt_or_completion[-1]["content"]
