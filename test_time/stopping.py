"""Stop rules, which end a run early by signals that need no gold. The size of the majority is not one of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field, ValidationError

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.records.metrics import ENTROPY, GRADIENT_NORM, KL, LOSS, StepRow, WatchedSignal

# Among fewer prompts, several may well have the same answer.
FEWEST_PROMPTS = 5
# The mean entropy of these steps is the starting entropy.
FIRST_STEPS = 3


class StopRules(BaseModel, frozen=True, extra="forbid"):
    """The limits. A rule fires when its limit is passed in `patience` steps in a row (docs/journeys/adapt.md).

    `kl` limits the mean KL to the base model over the tokens trained on, in nats (`restrain/kl`). `template` limits by
    how much the share of prompts with the most common majority answer exceeds the base model's. `entropy` is the lowest
    policy entropy, as a share of that in the first steps.
    """

    kl: float = Field(0.15, gt=0)
    template: float = Field(0.4, gt=0)
    entropy: float = Field(0.25, gt=0, lt=1)
    patience: int = Field(2, ge=1)


@dataclass(frozen=True)
class Alarm:
    """A limit that was passed from step `since` to step `step`, where the signal had this `value`.

    A value that is not finite, which is NaN here, fires at once.
    """

    rule: str
    since: int
    step: int
    value: float
    limit: float

    def __str__(self) -> str:
        """The alarm in one sentence."""
        if math.isnan(self.value):
            return f"{SIGNALS[self.rule]} was no finite number at step {self.step}"
        return (
            f"{SIGNALS[self.rule]} passed its limit from step {self.since} to step {self.step} "
            f"({self.value:.3g}, limit {self.limit:.3g})"
        )

    @property
    def trusted_until(self) -> int:
        """The last step whose model is not affected by the alarm.

        The numbers of a step begin with the policy that the step before it has left. If they are not finite at once,
        that policy may already be broken.
        """
        return self.since - (2 if math.isnan(self.value) and self.since == self.step else 1)


SIGNALS = {
    "kl": "the KL to the base model",
    "template": "the share of prompts with the same majority answer",
    "entropy": "the policy's entropy",
    "loss": "the policy loss",
    "gradient": "the gradient's norm",
}
# The names in a line of progress, which always shows the share of the most common answer.
SHORT = {"kl": "KL", "template": "top answer", "entropy": "entropy"}
# Signals that are numbers of the policy. Whatever the rules are, each of these numbers must be finite.
NUMBERS = {"kl": KL, "entropy": ENTROPY, "loss": LOSS, "gradient": GRADIENT_NORM}


def alarm(rows: Sequence[StepRow], top_answer_share: float, rules: StopRules) -> Alarm | None:
    """The first alarm, in order of steps, or None. `top_answer_share` is that of the base model."""
    limits = _limits(rows, top_answer_share, rules)
    streaks = [_first_streak(name, limit, rows, rules.patience) for name, limit in limits.items()]
    found = [one for one in (*streaks, _first_broken(rows)) if one is not None]
    return min(found, key=lambda one: (one.step, one.since), default=None)


def passed_since(rows: Sequence[StepRow], top_answer_share: float, rules: StopRules) -> list[int]:
    """For each limit that the last step passes, the step since which it has been passed without a break.

    An alarm may follow, and then the model from before that step is needed.
    """
    found = []
    for name, limit in _limits(rows, top_answer_share, rules).items():
        within = [row.step for row in rows if not _passes(name, limit, row)]
        after = [row.step for row in rows if row.step > max(within, default=0)]
        found += after[:1]
    return found


def watched_signals(rows: Sequence[StepRow], top_answer_share: float, rules: StopRules) -> tuple[WatchedSignal, ...]:
    """The signals of the last step with their limits; `rows` are all steps so far."""
    limits = _limits(rows, top_answer_share, rules)
    starts = {"kl": 0.0, "template": top_answer_share, "entropy": limits.get("entropy", 0.0) / rules.entropy}
    values = {name: _value(name, rows[-1]) for name in limits}
    return tuple(
        WatchedSignal(SHORT[name], value, starts[name], limits[name])
        for name, value in values.items()
        if value is not None
    )


def unwatched(rows: Sequence[StepRow]) -> list[str]:
    """Signals that no step has logged, in words. Their rules could not fire."""
    return [SIGNALS[name] for name in ("kl", "template", "entropy") if all(_value(name, row) is None for row in rows)]


def _value(name: str, row: StepRow) -> float | None:
    if name == "template":
        return float(row.votes["top_answer_share"]) if row.votes["prompts"] >= FEWEST_PROMPTS else None
    return row.numbers.get(NUMBERS[name])


def _limits(rows: Sequence[StepRow], top_answer_share: float, rules: StopRules) -> dict[str, float]:
    """The limits by rule. There is none for the entropy until the first steps have logged it."""
    logged = [row.numbers[ENTROPY] for row in rows[:FIRST_STEPS] if ENTROPY in row.numbers]
    first = [value for value in logged if not math.isnan(value)]
    entropy = {"entropy": sum(first) / FIRST_STEPS * rules.entropy} if len(first) == FIRST_STEPS else {}
    return {"kl": rules.kl, "template": top_answer_share + rules.template, **entropy}


def _first_broken(rows: Sequence[StepRow]) -> Alarm | None:
    row = next((row for row in rows if row.broken), None)
    names = {number: name for name, number in NUMBERS.items()}
    return Alarm(names[row.broken[0]], row.step, row.step, math.nan, math.nan) if row else None


def _first_streak(name: str, limit: float, rows: Sequence[StepRow], patience: int) -> Alarm | None:
    since = None
    for place, row in enumerate(rows):
        value = _value(name, row)
        if value is None or not _passes(name, limit, row):
            since = None
            continue
        since = place if since is None else since
        if place - since + 1 == patience:
            return Alarm(name, rows[since].step, row.step, value, limit)
    return None


def _passes(name: str, limit: float, row: StepRow) -> bool:
    """Whether a step has a value beyond the rule's limit, or one that is not finite."""
    value = _value(name, row)
    if value is None:
        return False
    return math.isnan(value) or (value < limit if name == "entropy" else value > limit)


def parse_stop_rules(items: Sequence[str]) -> StopRules:
    """The rules with items such as `kl=0.2` on top of the defaults. Raises ConfigError for a wrong name or value."""
    pairs = [item.partition("=") for item in items]
    try:
        return StopRules.model_validate({name: value for name, _, value in pairs})
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(
            f"--stop {first['loc'][0]}: {first['msg']}. Give NAME=NUMBER of {', '.join(StopRules.model_fields)}."
        ) from None
