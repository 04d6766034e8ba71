"""Step times and tokens from what OpenRLHF logs of every step, hooked or not."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

LINE = re.compile(r"Global step (\d+): (\{.*)")
VALUE = r"'{name}': ([-+.\de]+)"


@dataclass(frozen=True)
class StepTime:
    """One step: seconds in all, of generation and of training; tokens of the responses, and of what was trained on."""

    step: int
    total: float
    generation: float
    training: float
    response_tokens: float
    trained_tokens: float


def read_step_times(log: Path) -> list[StepTime]:
    """All steps in the order in which they were logged; those of a run that was resumed may come twice."""
    text = log.read_text(encoding="utf-8", errors="replace")
    return [_step(int(match[1]), match[2]) for match in LINE.finditer(text)]


def _step(step: int, status: str) -> StepTime:
    def number(name: str) -> float:
        found = re.search(VALUE.format(name=re.escape(name)), status)
        return float(found[1]) if found else float("nan")

    rollouts = number("rollout/num_samples")
    return StepTime(
        step=step,
        total=number("timing/step_total"),
        generation=number("timing/generation"),
        training=number("timing/ppo_train"),
        response_tokens=rollouts * number("rollout/response_length_mean"),
        trained_tokens=rollouts * number("total_length"),
    )


@dataclass(frozen=True)
class Speed:
    """Medians of a run's warm steps: seconds, and tokens per second of generation and of training."""

    step_seconds: float
    generated_per_second: float
    trained_per_second: float
    steps: int

    @classmethod
    def of(cls, steps: Sequence[StepTime]) -> "Speed":
        """Without the first step after each start, which compiles and warms up."""
        warm = [step for step, before in zip(steps[1:], steps, strict=False) if step.step == before.step + 1]
        return cls(
            step_seconds=median(step.total for step in warm),
            generated_per_second=median(step.response_tokens / step.generation for step in warm),
            trained_per_second=median(step.trained_tokens / step.training for step in warm),
            steps=len(warm),
        )
