"""What is kept of one scored group, and its columns in Arrow's types: one row for each rollout."""

from dataclasses import dataclass, fields
from types import NoneType
from typing import Any, get_args, get_type_hints

from restrain_openrlhf.data.jsonl import arrow


@dataclass(frozen=True)
class KeptRollout:
    """One rollout of a group; `rollout` is its place there, and the trained ones come first.

    `answer`, `label`, `class_votes`, `label_weight` and `key` are None where the answer is missing: `label` numbers the
    group's answer classes by first appearance, `class_votes` is the size of its class, `label_weight` w_j of its class
    (eq. 3 of the paper). `key` is equal for equal answers of one prompt at all steps. `advantage_pos` and
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
    key: str | None = None
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


OF_GROUP = tuple(field.name for field in fields(KeptGroup) if field.name != "rollouts")
# A rollout's fields and their columns: `class` is no name for a Python field.
OF_ROLLOUT = {field.name: {"label": "class"}.get(field.name, field.name) for field in fields(KeptRollout)}


def schema() -> Any:
    """The columns of a file of kept rollouts, in Arrow's types (docs/operations/running.md): those of the fields."""
    pa = arrow()
    types = {int: pa.int32(), str: pa.string(), bool: pa.bool_(), float: pa.float64()}
    group, rollout = get_type_hints(KeptGroup), get_type_hints(KeptRollout)
    hints = {name: group[name] for name in OF_GROUP} | {OF_ROLLOUT[name]: hint for name, hint in rollout.items()}
    kinds = {name: get_args(hint) or (hint,) for name, hint in hints.items()}
    return pa.schema([pa.field(name, types[kind[0]], nullable=NoneType in kind) for name, kind in kinds.items()])
