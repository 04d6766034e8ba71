"""Shows a run's progress: a bar on a terminal, otherwise a line with its time for each phase and step."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from statistics import median

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from restrain_openrlhf.records.metrics import STEP_SECONDS, StepRow

OnPhase = Callable[[str], None]
OnStep = Callable[[StepRow, int], None]
# The time left is estimated from the median of the latest steps, because responses get longer or shorter during a run.
LATEST_STEPS = 20


def numbered(on_phase: OnPhase, total: int) -> OnPhase:
    """The callback with the number of each phase among `total`."""
    numbers = iter(range(1, total + 1))
    return lambda name: on_phase(f"{next(numbers)} of {total}: {name}")


COLUMNS = (
    SpinnerColumn(),
    TextColumn("{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TimeElapsedColumn(),
)


class _BarAndFacts(Progress):
    """A bar with the numbers of the last step below it, because a terminal of 80 columns cannot show both in a line."""

    facts = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.facts:
            yield Text(self.facts)


@contextmanager
def step_progress(label: str, console: Console) -> Iterator[tuple[OnPhase, OnStep]]:
    """A progress bar on a terminal, else one line per event; yields the callbacks for a phase and for a step."""
    with _BarAndFacts(*COLUMNS, console=console, disable=not console.is_terminal) as bar:
        shown = _StepProgress(label, bar)
        yield shown.on_phase, shown.on_step


class _StepProgress:
    """What a run has shown so far, on the console of its bar."""

    def __init__(self, label: str, bar: _BarAndFacts) -> None:
        self._label, self._bar, self._console = label, bar, bar.console
        self._task = bar.add_task(label, total=None)
        self._seconds: deque[float] = deque(maxlen=LATEST_STEPS)

    def on_phase(self, name: str) -> None:
        """Show a new phase, of unknown length."""
        # A task that has had a total keeps it: a phase without one needs a task of its own.
        self._bar.remove_task(self._task)
        self._task = self._bar.add_task(f"{self._label}: {name}", total=None)
        self._bar.facts = ""
        self._print_line(name)

    def on_step(self, row: StepRow, total: int) -> None:
        """Show a step of `total` steps."""
        self._seconds.extend([row.numbers[STEP_SECONDS]] if STEP_SECONDS in row.numbers else [])
        facts = _pace(self._seconds, total - row.step) + _facts(row)
        self._bar.facts = facts
        self._bar.update(self._task, description=f"{self._label}: training", completed=row.step, total=total)
        self._print_line(f"step {row.step}/{total}  {facts}")

    def _print_line(self, text: str) -> None:
        if not self._console.is_terminal:
            self._console.print(f"{datetime.now():%H:%M:%S}  {self._label}: {text}", markup=False, soft_wrap=True)


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
