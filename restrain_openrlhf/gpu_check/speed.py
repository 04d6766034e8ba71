"""Step time hooked against OpenRLHF alone, and tokens per second; reported, and failed only where absurd."""

import math

from restrain_openrlhf.gpu_check.children import RESTRAIN, run_module
from restrain_openrlhf.gpu_check.outcome import Outcome, judged
from restrain_openrlhf.gpu_check.setting import Setting
from restrain_openrlhf.gpu_check.small_run import SmallRun
from restrain_openrlhf.gpu_check.step_times import Speed, read_step_times

# Steps of such a small model vary by half; a hook that costs three times a step is broken.
ABSURD_RATIO = 3.0


def check_speed(setting: Setting) -> list[Outcome]:
    """The run of the training check, made here where that was left out, and one of OpenRLHF alone on the same flags."""
    small, folder = SmallRun.of(setting), setting.folder("stock")
    run_module(RESTRAIN, small.words(), small.folder / "train.log")
    log = folder / "stock.log"
    run_module("restrain_openrlhf.hook.stock_train", small.stock_words(folder / "run"), log)
    hooked, stock = (Speed.of(read_step_times(path)) for path in (small.run.log, log))
    return [judge_ratio(hooked, stock), judge_tokens(hooked)]


def judge_ratio(hooked: Speed, stock: Speed) -> Outcome:
    """Medians of the warm steps, side by side."""
    ratio = hooked.step_seconds / stock.step_seconds
    found = (
        f"{ratio:.2f} of OpenRLHF alone: {hooked.step_seconds:.2f} s against {stock.step_seconds:.2f} s a step, "
        f"medians of {hooked.steps} and {stock.steps} (reported; above {ABSURD_RATIO:g} is a failure)"
    )
    numbers = {"hooked_seconds": hooked.step_seconds, "stock_seconds": stock.step_seconds}
    return judged("step time", ratio < ABSURD_RATIO, found, ratio=ratio, **numbers)


def judge_tokens(speed: Speed) -> Outcome:
    """Of the demo's small model: for comparing machines, not for planning."""
    numbers = {"generated_per_second": speed.generated_per_second, "trained_per_second": speed.trained_per_second}
    found = ", ".join(f"{value:,.0f} {name.partition('_')[0]}" for name, value in numbers.items())
    holds = all(math.isfinite(value) and value > 0 for value in numbers.values())
    return judged(
        "tokens per second", holds, f"{found}, with the demo's model of 0.8 M parameters (reported)", **numbers
    )
