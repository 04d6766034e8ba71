"""Statistics of one step's groups, which show learning and collapse without gold answers."""

import hashlib
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from restrain_openrlhf.method.types import Floats


@dataclass(frozen=True)
class StepVotes:
    """Statistics over the groups of one step. A share is one of groups unless its name says voters.

    Voters are all rollouts that voted: those that are trained on, and those that only vote (TTRL's `votes` beyond
    `train_on`). The host's own `rollout/` metrics only cover trained rollouts. `generated_tokens` counts the tokens of
    all voters.
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
    generated_tokens: int
    majority_histogram: tuple[int, ...]

    def scalars(self) -> dict[str, float]:
        """All but the histogram and the digest, for loggers that take numbers."""
        return {name: float(value) for name, value in asdict(self).items() if isinstance(value, int | float)}


def step_votes(
    prompts: Sequence[str],
    votes: Mapping[str, Floats],
    majorities: Sequence[Hashable | None],
    positive: Floats,
    negative: Floats,
) -> StepVotes:
    """Statistics of one step's groups.

    `votes` has columns of one number a group, named as in hook/rollout/group_columns.py. `majorities` holds one value
    for each group, equal where the majority answers are equal, and None if no rollout gave an answer. `positive` and
    `negative` are A⁺ and A⁻ of all trained rollouts, u_x included; their norms are Euclidean. `prompts_digest` is equal
    for two steps exactly when they trained on the same prompts in any order. `majority_histogram[c]` counts the groups
    whose majority has c voters, c = 0..n. `low_consensus_share` is the mean share of rollouts
    that the method penalises: with RESTRAIN, the share of groups below κ.
    """
    voters, counts = votes["voters"], votes["majority_count"]
    histogram = np.bincount(counts.astype(int), minlength=int(voters.max()) + 1)
    return StepVotes(
        prompts=len(prompts),
        voters=int(voters.sum()),
        prompts_digest=hashlib.sha256("\0".join(sorted(prompts)).encode()).hexdigest()[:16],
        majority_share_mean=float(np.mean(counts / voters)),
        low_consensus_share=float(np.mean(votes["penalized"])),
        unanimous_share=float(np.mean(counts == voters)),
        effective_labels_mean=float(np.mean(votes["effective_labels"])),
        missing_share_of_voters=float(votes["missing"].sum() / voters.sum()),
        truncated_share_of_voters=float(votes["truncated"].sum() / voters.sum()),
        top_answer_share=top_answer_share(majorities),
        advantage_pos_norm=float(np.linalg.norm(positive)),
        advantage_neg_norm=float(np.linalg.norm(negative)),
        prompt_weight_mean=float(np.mean(votes["prompt_weight"])),
        generated_tokens=int(votes["generated_tokens"].sum()),
        majority_histogram=tuple(int(count) for count in histogram),
    )


def top_answer_share(majorities: Sequence[Hashable | None]) -> float:
    """Share of prompts that have the most common of all majority answers. Near 1, the model gives a template answer.

    A majority is None if no rollout of that prompt gave an answer.
    """
    given = Counter(majority for majority in majorities if majority is not None)
    return given.most_common(1)[0][1] / len(majorities) if given else 0.0
