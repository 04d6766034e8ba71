"""How long a run takes: arithmetic on OpenRLHF's flags, a model's shape and a card. Nothing in it was measured."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from restrain_openrlhf.config.gpu_layout import GpuLayout, rollouts_of_step
from restrain_openrlhf.config.host_flags import Flags
from restrain_openrlhf.config.memory.estimate import estimate
from restrain_openrlhf.config.memory.lines import GIB
from restrain_openrlhf.config.memory.shape import ModelShape

# Tokens of a prompt with its response, in the mean; assumed.
TOKENS = 1_200
# An engine is assumed to batch at most so many rollouts, and to generate at most so many tokens a second.
_DRAWN, _FASTEST = 512, 8_000.0


@dataclass(frozen=True)
class Card:
    """A GPU: its GiB, operations a second that training is assumed to reach, and bytes a second of its memory.

    Operations are three tenths of the speed in dense bf16: 165e12, 362e12, 312e12, 989e12 and 989e12 a second.
    """

    gib: int
    flops: float
    bandwidth: float


CardName = Literal["RTX 4090", "L40S", "A100", "H100", "H200"]
CARDS: Mapping[str, Card] = {
    "RTX 4090": Card(24, 50e12, 1.0e12),
    "L40S": Card(48, 109e12, 0.864e12),
    "A100": Card(80, 94e12, 2.0e12),
    "H100": Card(80, 297e12, 3.35e12),
    "H200": Card(141, 297e12, 4.8e12),
}


def generated_per_second(flags: Flags, shape: ModelShape, card: Card, tokens: int = TOKENS) -> float:
    """Tokens a second of one engine: six tenths of what the memory's bandwidth allows, and at most 8,000.

    For each token of all its rollouts an engine reads the weights once, and their keys and values, which are three
    quarters as long as `tokens` in the mean. Raises NoEstimateError; see `estimate`.
    """
    room = estimate(flags, shape, card.gib * GIB).cache
    context = 0.75 * tokens
    drawn = 0 if room is None else min(room.rollouts, _DRAWN, room.tokens / context)
    token = 4 * shape.num_hidden_layers * shape.num_key_value_heads * shape.head_dim
    return min(0.6 * drawn * card.bandwidth / (2 * shape.parameters + drawn * context * token), _FASTEST)


@dataclass(frozen=True)
class Hours:
    """Hours of a run's training and of its base model's vote, where rollouts with their prompts have `tokens`."""

    training: float
    vote: float
    tokens: int


def hours(flags: Flags, shape: ModelShape, card: Card, steps: int, prompts: int) -> Hours:
    """The estimate for a run of so many steps on so many prompts, padded. Raises NoEstimateError; see `estimate`."""
    tokens = min(TOKENS, int(flags["data.max_len"]) // 2)
    speed = generated_per_second(flags, shape, card, tokens)
    generation, passes = step_seconds(flags, shape, speed, card.flops, tokens)
    vote = prompts / int(flags["rollout.batch_size"]) * generation
    return Hours(steps * (generation + passes) / 3600, vote / 3600, tokens)


def step_seconds(
    flags: Flags,
    shape: ModelShape,
    per_second: float,
    flops: float,
    tokens: int = TOKENS,
    is_packed: bool = False,
    is_own: bool = False,
) -> tuple[float, float]:
    """Seconds of a step's generation, by engines of `per_second` tokens, and of its passes (docs/operations/one_gpu.md,
    Hours). `is_own` says that the old policy's log-probabilities take no pass (`own_old_log_probs`)."""
    layout, drawn = GpuLayout.of(flags), rollouts_of_step(flags) * tokens
    forward, training = (1.0, 1.0) if is_packed else paddings(flags, tokens)
    work = (2 if is_own else 4) * forward + operations_of_training(flags) * training
    return drawn / layout.engines / per_second, drawn * work * shape.parameters / layout.policy / flops


def operations_of_training(flags: Flags) -> int:
    """Operations per parameter and token of a step's own passes: forward, again with checkpointing, and backward."""
    return (4 if flags["ds.lora.rank"] else 6) + (2 if flags["actor.gradient_checkpointing_enable"] else 0)


def paddings(flags: Flags, tokens: int = TOKENS) -> tuple[float, float]:
    """Tokens that are computed for each that is there, in a padded micro-batch of the experience and of training."""
    sizes = (range(1, flags[f"{kind}.micro_batch_size"] + 1) for kind in ("rollout", "train"))
    forward, training = (min(sum(1 / place for place in size), flags["data.max_len"] / tokens) for size in sizes)
    return forward, training
