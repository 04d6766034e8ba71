"""Step time hooked against OpenRLHF alone, and tokens per second; reported, and failed only where absurd."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from restrain_openrlhf.errors import RunError
from restrain_openrlhf.gpu_check.children import RESTRAIN, run_module
from restrain_openrlhf.gpu_check.outcome import Outcome, judged
from restrain_openrlhf.gpu_check.setting import Setting
from restrain_openrlhf.gpu_check.small_run import STOCK_STEPS, SmallRun
from restrain_openrlhf.hook.throughput import GENERATED_PER_SECOND, TRAINED_PER_SECOND
from restrain_openrlhf.run.metrics import StepRow, read_steps

# Steps of such a small model vary by half; a hook that costs three times a step is broken.
ABSURD_RATIO = 3.0
# All steps of the stock run but the first, which compiles; as many of the hooked run, which was started twice.
WARM = STOCK_STEPS - 1
STEP_SECONDS = "timing/step_total"
# What OpenRLHF logs of a step; without the hook there are no rows.
LOGGED = re.compile(rf"Global step \d+: \{{.*'{STEP_SECONDS}': ([-+.\de]+)")


@dataclass(frozen=True)
class Speed:
    """Medians of the hooked run's last steps: seconds a step, tokens generated and trained on per second."""

    step_seconds: float
    generated_per_second: float
    trained_per_second: float

    @classmethod
    def of(cls, rows: Sequence[StepRow]) -> "Speed":
        """A number that a step does not have is NaN, and so is its median."""
        names = (STEP_SECONDS, GENERATED_PER_SECOND, TRAINED_PER_SECOND)
        return cls(*(median(row.numbers.get(name) or math.nan for row in rows[-WARM:]) for name in names))


def check_speed(setting: Setting) -> list[Outcome]:
    """The run of the training check, made here where that was left out, and one of OpenRLHF alone on the same flags."""
    small, folder = SmallRun.of(setting), setting.folder("stock")
    if not small.run.completed.exists():
        run_module(RESTRAIN, small.words(), small.folder / "train.log")
    log = folder / "stock.log"
    run_module("restrain_openrlhf.hook.stock_train", small.stock_words(folder / "run"), log)
    hooked = Speed.of(read_steps(small.run.metrics))
    return [judge_ratio(hooked.step_seconds, stock_seconds(log)), judge_tokens(hooked)]


def stock_seconds(log: Path) -> float:
    """Median seconds of the stock run's last steps. Raises RunError where it logged fewer than it was to take."""
    logged = LOGGED.findall(log.read_text(encoding="utf-8", errors="replace"))
    if len(logged) < STOCK_STEPS:
        raise RunError(f"OpenRLHF alone logged {len(logged)} steps with their time, not {STOCK_STEPS}. Log: {log}")
    return median(map(float, logged[-WARM:]))


def judge_ratio(hooked: float, stock: float) -> Outcome:
    """Seconds a step, side by side."""
    ratio = hooked / stock
    found = (
        f"{ratio:.2f} of OpenRLHF alone: {hooked:.2f} s against {stock:.2f} s a step, medians of {WARM} "
        f"(reported; above {ABSURD_RATIO:g} is a failure)"
    )
    numbers = {"hooked_seconds": hooked, "stock_seconds": stock}
    return judged("step time", ratio < ABSURD_RATIO, found, ratio=ratio, **numbers)


def judge_tokens(speed: Speed) -> Outcome:
    """Of the demo's small model: for comparing machines, not for planning."""
    numbers = {"generated_per_second": speed.generated_per_second, "trained_per_second": speed.trained_per_second}
    found = ", ".join(f"{value:,.0f} {name.partition('_')[0]}" for name, value in numbers.items())
    holds = all(math.isfinite(value) and value > 0 for value in numbers.values())
    return judged(
        "tokens per second", holds, f"{found}, with the demo's model of 0.8 M parameters (reported)", **numbers
    )
