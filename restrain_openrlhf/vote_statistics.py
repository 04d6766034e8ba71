"""What one training step's votes look like: the signals that tell learning from collapse, without any gold."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from restrain_openrlhf.answers import classes
from restrain_openrlhf.answers.residual import RESIDUAL
from restrain_openrlhf.method import GroupScore


@dataclass(frozen=True)
class StepVotes:
    """Statistics over the groups of one step. Shares are of groups unless they say voters.

    Voters are all rollouts that voted: the trained ones, and those that only vote (TTRL's `votes` beyond `train_on`).
    The host's own `rollout/` metrics are of trained rollouts.
    """

    prompts: int
    voters: int
    prompts_digest: str
    majority_share_mean: float
    low_consensus_share: float
    unanimous_share: float
    effective_labels_mean: float
    missing_share_of_voters: float
    truncated_share_of_voters: float
    top_answer_share: float
    advantage_pos_norm: float
    advantage_neg_norm: float
    prompt_weight_mean: float
    residual_timeouts: int
    majority_histogram: tuple[int, ...]

    def scalars(self) -> dict[str, float]:
        """All but the histogram and the digest, for loggers that take numbers."""
        return {name: float(value) for name, value in asdict(self).items() if isinstance(value, int | float)}


def step_votes(
    scores: Sequence[GroupScore],
    prompts: Sequence[str],
    answers: Sequence[Sequence[str | None]],
    truncated: Sequence[Sequence[bool]],
) -> StepVotes:
    """Statistics of one step's groups, all in the groups' order; `answers` and `truncated` have one entry per voter.

    `prompts_digest` is equal for two steps exactly when they trained on the same prompts in any order.
    `majority_histogram[c]` counts the groups whose majority has c voters, c = 0..n. `low_consensus_share` counts
    the groups the method penalised. `residual_timeouts` counts, since the process began, the
    answers that latex2sympy2 took too long over. The norms are Euclidean over all trained rollouts, u_x included.
    """
    votes = [score.votes for score in scores]
    histogram = np.bincount([vote.majority_count for vote in votes], minlength=max(vote.n for vote in votes) + 1)
    return StepVotes(
        prompts=len(votes),
        voters=sum(vote.n for vote in votes),
        prompts_digest=hashlib.sha256("\0".join(sorted(prompts)).encode()).hexdigest()[:16],
        majority_share_mean=float(np.mean([vote.majority_count / vote.n for vote in votes])),
        low_consensus_share=float(np.mean([score.penalized for score in scores])),
        unanimous_share=float(np.mean([vote.majority_count == vote.n for vote in votes])),
        effective_labels_mean=float(np.mean([vote.effective_labels for vote in votes])),
        missing_share_of_voters=float(np.mean([answer is None for group in answers for answer in group])),
        truncated_share_of_voters=float(np.mean([flag for group in truncated for flag in group])),
        top_answer_share=top_answer_share(answers),
        advantage_pos_norm=_norm([score.pair.positive for score in scores]),
        advantage_neg_norm=_norm([score.pair.negative for score in scores]),
        prompt_weight_mean=float(np.mean([score.prompt_weight for score in scores])),
        residual_timeouts=RESIDUAL.timed_out,
        majority_histogram=tuple(int(count) for count in histogram),
    )


def top_answer_share(answers: Sequence[Sequence[str | None]]) -> float:
    """Share of prompts whose majority answer is the one most common across prompts: near 1 means a template answer."""
    majorities = [majority for group in answers if (majority := majority_answer(group)) is not None]
    if not majorities:
        return 0.0
    most_common = Counter(classes(majorities)).most_common(1)[0][1]
    return most_common / len(answers)


def majority_answer(answers: Sequence[str | None]) -> str | None:
    """The group's majority answer, as its first rollout wrote it; the first to appear wins a tie."""
    labels = classes(answers)
    counts = Counter(label for label in labels if label is not None)
    if not counts:
        return None
    label = counts.most_common(1)[0][0]
    return answers[labels.index(label)]


def _norm(parts: Sequence[np.ndarray]) -> float:
    return float(np.linalg.norm(np.concatenate(parts)))
