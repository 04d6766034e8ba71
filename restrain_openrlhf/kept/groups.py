"""What is kept of one group: its prompt, its vote, and each rollout with its class, weight and advantages."""

from dataclasses import dataclass


@dataclass(frozen=True)
class KeptRollout:
    """One rollout of a group; `rollout` is its place there, and the trained ones come first.

    `answer`, `label`, `class_votes` and `label_weight` are None where the answer is missing: `label` numbers the
    group's answer classes by first appearance, `class_votes` is the size of its class, `label_weight` w_j of its class
    (eq. 3 of the paper). A method that counts missing answers as a label gives them the last three. `advantage_pos` and
    `advantage_neg` are A⁺ and A⁻, u_x included, None where the rollout only voted. `log_prob_gap` is the mean over its
    tokens of |log p_vLLM − log π| in nats, `entropy` H_i in nats; None where they were not measured.
    """

    rollout: int
    response: str
    finished: bool
    answer: str | None
    label: int | None
    class_votes: int | None
    label_weight: float | None
    trained: bool
    advantage_pos: float | None = None
    advantage_neg: float | None = None
    log_prob_gap: float | None = None
    entropy: float | None = None


@dataclass(frozen=True)
class KeptGroup:
    """One prompt's group in one step; `group` is its place in the step, counted from 0 before any were left out.

    `prompt_id` is the prompt's `text_hash` (data/identity.py). `voters` counts the rollouts that voted,
    `majority_count` is M, `prompt_weight` u_x.
    """

    step: int
    group: int
    prompt_id: str
    prompt: str
    majority_count: int
    voters: int
    prompt_weight: float
    penalized: bool
    rollouts: tuple[KeptRollout, ...]
