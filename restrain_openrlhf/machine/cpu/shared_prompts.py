"""Computes each prompt of a micro-batch once for all its rollouts, since a CPU's step takes as long as its tokens."""

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

# A row's attention is quadratic in its tokens, so no more rollouts share a row than have room in this many.
ROW_TOKENS = 512
# For the demo's models of 0.8 M parameters, laying out a micro-batch takes as long as the tokens that it saves; and
# without it their numbers do not depend on which rollouts are in a micro-batch.
LEAST_PARAMETERS = 10_000_000
# Sharing has to save at least this part of a micro-batch, padding included.
LEAST_SAVED = 0.1


@dataclass(frozen=True)
class Segment:
    """A rollout in a row: tokens `first` to `end` - 1 of rollout `rollout`. Token `first` is the prompt's last one.

    Each rollout has its own copy of this token, because it is followed by another token in each.
    """

    rollout: int
    first: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.first


@dataclass(frozen=True)
class SharedRows:
    """Rollouts (B, T) as rows (R, S), of which each has a prompt without its last token, and segments that follow it.

    `tokens`, `positions` and `real` (1, or 0 where a row is padded) are (R, S). `visible` (R, 1, S, S) says what a
    token attends to: its prompt, and its own segment up to itself. `places` (B, T - 1) has the place of each rollout's
    token in the flattened (R, S - 1) of what the model predicts; it is 0 for prompts and padding.
    """

    tokens: Any
    positions: Any
    real: Any
    visible: Any
    places: Any


def forward(wrapped: Callable[..., Any], actor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Wraps Actor.forward (openrlhf/models/actor.py), which the policy, its gradient and the reference policy use.

    Returns what the host does: log-probabilities (B, T - 1), and if asked the model's output with the entropy of the
    same shape. The output's logits stay in rows, since the trainers do not read them. It is the host's computation,
    added up in another order. Where the host asks for anything else, or little is saved, its own forward runs.
    """
    given = inspect.signature(wrapped).bind(*args, **kwargs).arguments
    batch = [given.get(name) for name in ("sequences", "action_mask", "attention_mask")]
    rows = shared_rows(*batch) if _can(actor, given) else None
    if rows is None:
        return wrapped(*args, **kwargs)
    everything = rows.real.new_ones(rows.real[:, 1:].shape)
    with _attends(actor.model, rows):
        found = wrapped(**{**given, "sequences": rows.tokens, "action_mask": everything, "attention_mask": rows.real})
    log_probs, output = found if isinstance(found, tuple) else (found, None)
    log_probs = log_probs.flatten()[rows.places] * given["action_mask"].float()
    if output is None:
        return log_probs
    if hasattr(output, "entropy"):
        output.entropy = output.entropy.flatten()[rows.places]
    return log_probs, output


def _can(actor: Any, given: dict[str, Any]) -> bool:
    """Whether the host asks for a padded batch's log-probabilities, by a large model that attends to all tokens."""
    # DeepSpeed's engine has a `config` of its own.
    model = getattr(actor.model, "module", actor.model)
    config = model.config
    layers = getattr(config, "layer_types", None) or ["full_attention"]
    return (
        given.get("action_mask") is not None
        and not actor.packing_samples
        and not getattr(actor, "is_vlm", False)
        and not given.get("return_logprobs")
        and config._attn_implementation == "sdpa"
        and set(layers) == {"full_attention"}
        and sum(weights.numel() for weights in model.parameters()) >= LEAST_PARAMETERS
        and not (getattr(config, "sliding_window", None) or hasattr(config, "output_router_logits"))
    )


@contextmanager
def _attends(model: Any, rows: SharedRows) -> Iterator[None]:
    """Within the block, `model` gets the rows' own mask and positions instead of those that the host derives."""

    def own(_model: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, {**kwargs, "attention_mask": rows.visible, "position_ids": rows.positions}

    handle = model.register_forward_pre_hook(own, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def shared_rows(sequences: Any, action_mask: Any, attention_mask: Any) -> SharedRows | None:
    """The rows of rollouts, or None where they save too little, or where padding comes before a token.

    `sequences` and `attention_mask` are (B, T), and `action_mask` is (B, T - 1): its first 1 is where the prompt's last
    token predicts the response's first.
    """
    if bool((attention_mask[:, 1:] > attention_mask[:, :-1]).any()) or action_mask.shape[1] + 1 != sequences.shape[1]:
        return None
    rows = _rows(sequences, action_mask, attention_mask.sum(1).tolist())
    width = max(_length(row) for row in rows)
    if len(rows) * width > (1 - LEAST_SAVED) * sequences.numel():
        return None
    return _laid_out(sequences, rows, width)


def _rows(sequences: Any, action_mask: Any, lengths: Sequence[int]) -> list[list[Segment]]:
    """The rollouts of each prompt, as many in a row as have room."""
    firsts = action_mask.long().argmax(1).tolist()
    responds = action_mask.any(1).tolist()
    by_prompt: dict[tuple[int, ...], list[list[Segment]]] = defaultdict(lambda: [[]])
    for rollout, tokens in enumerate(sequences.tolist()):
        end = lengths[rollout]
        segment = Segment(rollout, firsts[rollout] if responds[rollout] else end - 1, end)
        rows = by_prompt[tuple(tokens[: segment.first + 1])]
        if rows[-1] and _length(rows[-1]) + segment.size > ROW_TOKENS:
            rows.append([])
        rows[-1].append(segment)
    return [row for rows in by_prompt.values() for row in rows]


def _length(row: Sequence[Segment]) -> int:
    return row[0].first + sum(segment.size for segment in row)


def _laid_out(sequences: Any, rows: Sequence[Sequence[Segment]], width: int) -> SharedRows:
    """The tensors of rows. A padding token attends to itself, because attention to nothing is no number."""
    import torch  # noqa: PLC0415 - the caller has it

    tokens, positions, real = sequences.new_zeros(3, len(rows), width)
    visible = torch.eye(width, dtype=torch.bool).repeat(len(rows), 1, 1)
    places = sequences.new_zeros(len(sequences), sequences.shape[1] - 1)
    for index, row in enumerate(rows):
        shared, at = row[0].first, row[0].first
        tokens[index, :shared] = sequences[row[0].rollout, :shared]
        positions[index, :shared] = torch.arange(shared)
        visible[index, :shared, :shared] = torch.ones(shared, shared, dtype=torch.bool).tril()
        for segment in row:
            after = at + segment.size
            tokens[index, at:after] = sequences[segment.rollout, segment.first : segment.end]
            positions[index, at:after] = torch.arange(segment.first, segment.end)
            visible[index, at:after, :shared] = True
            visible[index, at:after, at:after].logical_or_(torch.ones(segment.size, segment.size).tril().bool())
            places[segment.rollout, segment.first : segment.end - 1] = index * (width - 1) + torch.arange(at, after - 1)
            at = after
        real[index, :at] = 1
    return SharedRows(tokens, positions, real, visible.unsqueeze(1), places)
