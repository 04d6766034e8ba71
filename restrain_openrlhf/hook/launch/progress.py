"""Shows a run's progress: a line with its time for each phase and step."""

from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from statistics import median

from rich.console import Console

from restrain_openrlhf.records.metrics import STEP_SECONDS, StepRow

OnPhase = Callable[[str], None]
OnStep = Callable[[StepRow, int], None]
# The time left is estimated from the median of the latest steps, because responses get longer or shorter during a run.
LATEST_STEPS = 20


def numbered(on_phase: OnPhase, total: int) -> OnPhase:
    """The callback with the number of each phase among `total`."""
    numbers = iter(range(1, total + 1))
    return lambda name: on_phase(f"{next(numbers)} of {total}: {name}")


class StepProgress:
    def __init__(self, label: str, console: Console) -> None:
        self._label, self._console = label, console
        self._seconds: deque[float] = deque(maxlen=LATEST_STEPS)

    def on_phase(self, name: str) -> None:
        self._console.print(f"{datetime.now():%H:%M:%S}  {self._label}: {name}", markup=False, soft_wrap=True)

    def on_step(self, row: StepRow, total: int) -> None:
        self._seconds.extend([row.numbers[STEP_SECONDS]] if STEP_SECONDS in row.numbers else [])
        self.on_phase(f"step {row.step}/{total}  {_pace(self._seconds, total - row.step)}{_facts(row)}")


def _pace(seconds: deque[float], left: int) -> str:
    """How long a step takes, and how long the `left` steps will take, without evaluations and checkpoints."""
    if not seconds:
        return ""
    step = median(seconds)
    rest = f"  {timedelta(seconds=round(step * left))} left" if left else ""
    return f"{step:.3g} s a step{rest}  "


def _facts(row: StepRow) -> str:
    votes = row.votes
    broken = f"  NOT FINITE: {', '.join(row.broken)}" if row.broken else ""
    return (
        f"majority {votes['majority_share_mean']:.2f}  penalised {votes['low_consensus_share']:.2f}  "
        f"missing {votes['missing_share_of_voters']:.2f}  top answer {votes['top_answer_share']:.2f}{broken}"
    )
