"""Who waits for what: the seats, groups and results of one prompt, as data that travels through the store."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.method import GroupScore


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True)


class Seat(_Data):
    """One rollout's place. `name` is its connection's, `text` the digest of its query.

    `holder` is the replica with the connection, None once that is gone (at `vacated`, seconds of the store's clock).
    `orphaned`: gone because the replica fell silent. If it was only slow, its request still waits and comes back.
    """

    name: str
    text: str
    answer: str | None
    truncated: bool = False
    holder: str | None
    vacated: float = 0.0
    answered: bool = False
    orphaned: bool = False


class GroupResult(_Data):
    """A scored group, one value per seat that was there when it was scored; `problem` says why there is no score."""

    positive: tuple[float, ...] = ()
    negative: tuple[float, ...] = ()
    rewards: tuple[float, ...] = ()
    kl_weight: float = 1.0
    prompt_weight: float = 1.0
    penalized: bool = False
    neutral: bool = False
    problem: str | None = None

    @classmethod
    def of(cls, score: GroupScore, order: Sequence[int]) -> "GroupResult":
        """The parts of a score that clients get; seat i has entry order[i] of the score."""
        index = list(order)
        return cls(
            positive=tuple(score.pair.positive[index].tolist()),
            negative=tuple(score.pair.negative[index].tolist()),
            rewards=tuple(score.rewards[index].tolist()),
            kl_weight=score.kl_weight,
            prompt_weight=score.prompt_weight,
            penalized=score.penalized,
        )


class Group(_Data):
    """Up to n seats. `partial`: closed by the deadline with fewer. `scorer`: the replica that scores it."""

    name: str
    opened: float
    seats: tuple[Seat, ...] = ()
    partial: bool = False
    scorer: str | None = None
    result: GroupResult | None = None
    scored: float = 0.0


class PromptState(_Data):
    """Everything known of one prompt, oldest group first; its text and gold answer are what a scorer needs."""

    prompt: str = ""
    gold: str | None = None
    groups: tuple[Group, ...] = ()


@dataclass(frozen=True)
class Moment:
    """The store's clock (seconds), and when each replica last showed that it lives."""

    now: float
    beats: dict[str, float] = field(default_factory=dict)

    def seen_by(self, replica: str) -> "Moment":
        """As this replica sees it, which knows that it lives."""
        return Moment(self.now, {**self.beats, replica: self.now})


@dataclass(frozen=True)
class Share:
    """What one rollout gets of its group's result."""

    reward: float
    positive: float
    negative: float
    kl_weight: float
    prompt_weight: float
    penalized: bool
    neutral: bool = False


def share(result: GroupResult, index: int) -> Share:
    """The part of seat `index`; a neutral group, and a seat that came after the scoring, get no advantage."""
    if result.neutral or index >= len(result.rewards):
        return Share(0.0, 0.0, 0.0, result.kl_weight, result.prompt_weight, penalized=False, neutral=True)
    return Share(
        reward=result.rewards[index],
        positive=result.positive[index],
        negative=result.negative[index],
        kl_weight=result.kl_weight,
        prompt_weight=result.prompt_weight,
        penalized=result.penalized,
    )
