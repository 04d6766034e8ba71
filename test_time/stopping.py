"""Stop rules: they end a run early by signals that need no gold. The size of the majority is not one of them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.run.metrics import ENTROPY, GRADIENT_NORM, KL, LOSS, StepRow

# Of fewer prompts, several may well have the same answer.
FEWEST_PROMPTS = 5
# The mean entropy of these steps is the starting entropy.
FIRST_STEPS = 3


class StopRules(BaseModel):
    """Limits. A rule fires when its limit is passed in `patience` steps in a row (docs/journeys/adapt.md).

    `kl`: mean KL to the base model over the tokens trained on, in nats (`restrain/kl`). `template`: rise of the share
    of prompts with the most common majority answer, over the base model's share. `entropy`: the policy's entropy as a
    share of its entropy in the first steps.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kl: float = Field(0.15, gt=0)
    template: float = Field(0.4, gt=0)
    entropy: float = Field(0.25, gt=0)
    patience: int = Field(2, ge=1)


@dataclass(frozen=True)
class Start:
    """Signals at the start: the share of prompts with the base model's most common majority answer; entropy in nats."""

    top_answer_share: float
    entropy: float | None


@dataclass(frozen=True)
class Alarm:
    """A limit that was passed from step `since` to step `step`; `value` is that of the last step.

    A value that is not finite, NaN here, passes every limit, and fires at once.
    """

    rule: str
    since: int
    step: int
    value: float
    limit: float

    def __str__(self) -> str:
        """One sentence."""
        if math.isnan(self.value):
            return f"{SIGNALS[self.rule]} was no finite number at step {self.step}"
        return (
            f"{SIGNALS[self.rule]} passed its limit from step {self.since} to step {self.step} "
            f"({self.value:.3g}, limit {self.limit:.3g})"
        )

    @property
    def trusted_until(self) -> int:
        """The last step whose model is from before the alarm.

        A step's numbers are first those of the policy that the step before it left: where they are not finite, that
        policy may be what is broken.
        """
        return self.since - (2 if math.isnan(self.value) and self.since == self.step else 1)


SIGNALS = {
    "kl": "the KL to the base model",
    "template": "the share of prompts with the same majority answer",
    "entropy": "the policy's entropy",
    "loss": "the policy loss",
    "gradient": "the gradient's norm",
}
# The signals that are numbers of the policy: whichever rules there are, none of them may be without a value.
BROKEN = {KL: "kl", ENTROPY: "entropy", LOSS: "loss", GRADIENT_NORM: "gradient"}


@dataclass(frozen=True)
class Rule:
    """A signal's `value` at a step (None: not logged), its `limit`, and whether a value has `passed` it."""

    value: Callable[[StepRow, Start], float | None]
    limit: Callable[[StopRules, Start], float | None]
    passed: Callable[[float, float], bool]


def _top_answer_share(row: StepRow, _start: Start) -> float | None:
    return float(row.votes["top_answer_share"]) if row.votes["prompts"] >= FEWEST_PROMPTS else None


RULES = {
    "kl": Rule(
        lambda row, _start: row.numbers.get(KL),
        lambda rules, _start: rules.kl,
        lambda value, limit: value > limit,
    ),
    "template": Rule(
        _top_answer_share,
        lambda rules, start: start.top_answer_share + rules.template,
        lambda value, limit: value > limit,
    ),
    "entropy": Rule(
        lambda row, _start: row.numbers.get(ENTROPY),
        lambda rules, start: None if start.entropy is None else start.entropy * rules.entropy,
        lambda value, limit: value < limit,
    ),
}


def start_of(rows: Sequence[StepRow], top_answer_share: float) -> Start:
    """From the base model's votes and the first steps; entropy is None until those are logged."""
    logged = [row.numbers[ENTROPY] for row in rows[:FIRST_STEPS] if ENTROPY in row.numbers]
    first = [value for value in logged if not math.isnan(value)]
    return Start(top_answer_share, sum(first) / FIRST_STEPS if len(first) == FIRST_STEPS else None)


def alarm(rows: Sequence[StepRow], top_answer_share: float, rules: StopRules) -> Alarm | None:
    """The first rule that fires, in order of steps; None if none does."""
    start = start_of(rows, top_answer_share)
    streaks = [streak for name in RULES if (streak := _first_streak(name, rows, start, rules))]
    broken = _first_broken(rows)
    found = [*streaks, broken] if broken else streaks
    return min(found, key=lambda one: (one.step, one.since), default=None)


def _first_broken(rows: Sequence[StepRow]) -> Alarm | None:
    row = next((row for row in rows if row.broken), None)
    return Alarm(BROKEN[row.broken[0]], row.step, row.step, math.nan, math.nan) if row else None


def _first_streak(name: str, rows: Sequence[StepRow], start: Start, rules: StopRules) -> Alarm | None:
    limit = RULES[name].limit(rules, start)
    streak: list[tuple[int, float]] = []
    for row in rows:
        value = RULES[name].value(row, start)
        passed = value is not None and limit is not None and (math.isnan(value) or RULES[name].passed(value, limit))
        streak = [*streak, (row.step, value)] if passed and value is not None else []
        if limit is not None and len(streak) == rules.patience:
            return Alarm(name, streak[0][0], row.step, streak[-1][1], limit)
    return None


def unwatched(rows: Sequence[StepRow], top_answer_share: float) -> list[str]:
    """Signals that no step logged, in words. Their rules could not fire."""
    start = start_of(rows, top_answer_share)
    return [SIGNALS[name] for name, rule in RULES.items() if all(rule.value(row, start) is None for row in rows)]


def parse_stop_rules(items: Sequence[str]) -> StopRules:
    """`kl=0.2` and the like over the defaults. Raises ConfigError for a name or value that is none."""
    pairs = [item.partition("=") for item in items]
    try:
        return StopRules.model_validate({name: value for name, _, value in pairs})
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(
            f"--stop {first['loc'][0]}: {first['msg']}. Give NAME=NUMBER of {', '.join(StopRules.model_fields)}."
        ) from None
