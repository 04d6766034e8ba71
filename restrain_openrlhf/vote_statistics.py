"""What one training step's votes look like: the signals that tell learning from collapse, without any gold."""

import hashlib
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from restrain_openrlhf.answers import classes
from restrain_openrlhf.method.types import Floats


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


@dataclass(frozen=True)
class GroupVote:
    """One group's vote. `voters`, `majority_count`, `missing` and `truncated` count rollouts that voted.

    `positive` and `negative` are A⁺ and A⁻ of the trained rollouts, (n,). `majority` is equal for two groups whose
    majority answers are equal, None where no rollout gave an answer. `residual_timeouts` counts answers that
    latex2sympy2 took too long over.
    """

    prompt: str
    voters: float
    majority_count: float
    majority: int | None
    effective_labels: float
    missing: float
    truncated: float
    penalized: float
    prompt_weight: float
    residual_timeouts: float
    positive: Floats
    negative: Floats


def step_votes(groups: Sequence[GroupVote]) -> StepVotes:
    """Statistics of one step's groups.

    `prompts_digest` is equal for two steps exactly when they trained on the same prompts in any order.
    `majority_histogram[c]` counts the groups whose majority has c voters, c = 0..n. `low_consensus_share` counts
    the groups the method penalised. The norms are Euclidean over all trained rollouts, u_x included.
    """
    voters = sum(group.voters for group in groups)
    histogram = np.bincount(
        [int(group.majority_count) for group in groups], minlength=int(max(group.voters for group in groups)) + 1
    )
    return StepVotes(
        prompts=len(groups),
        voters=int(voters),
        prompts_digest=hashlib.sha256("\0".join(sorted(group.prompt for group in groups)).encode()).hexdigest()[:16],
        majority_share_mean=float(np.mean([group.majority_count / group.voters for group in groups])),
        low_consensus_share=float(np.mean([group.penalized for group in groups])),
        unanimous_share=float(np.mean([group.majority_count == group.voters for group in groups])),
        effective_labels_mean=float(np.mean([group.effective_labels for group in groups])),
        missing_share_of_voters=sum(group.missing for group in groups) / voters,
        truncated_share_of_voters=sum(group.truncated for group in groups) / voters,
        top_answer_share=top_answer_share([group.majority for group in groups]),
        advantage_pos_norm=float(np.linalg.norm(np.concatenate([group.positive for group in groups]))),
        advantage_neg_norm=float(np.linalg.norm(np.concatenate([group.negative for group in groups]))),
        prompt_weight_mean=float(np.mean([group.prompt_weight for group in groups])),
        residual_timeouts=int(sum(group.residual_timeouts for group in groups)),
        majority_histogram=tuple(int(count) for count in histogram),
    )


def top_answer_share(majorities: Sequence[Hashable | None]) -> float:
    """Share of prompts whose majority answer is the one most common across prompts: near 1 means a template answer.

    None: no rollout of that prompt gave an answer.
    """
    given = Counter(majority for majority in majorities if majority is not None)
    return given.most_common(1)[0][1] / len(majorities) if given else 0.0


def majority_answer(answers: Sequence[str | None]) -> str | None:
    """The group's majority answer, as its first rollout wrote it; the first to appear wins a tie."""
    labels = classes(answers)
    counts = Counter(label for label in labels if label is not None)
    if not counts:
        return None
    label = counts.most_common(1)[0][0]
    return answers[labels.index(label)]
