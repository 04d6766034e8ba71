"""A run's progress on the terminal: a bar, or a line with its time for each phase and step, and when it will end.

On a terminal a signal near the limit that would end the run is shown in colour, unless NO_COLOR is set.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from statistics import median

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from restrain_openrlhf.answers.votes import MANY_MISSING
from restrain_openrlhf.records.metrics import STEP_SECONDS, StepRow

OnPhase = Callable[[str], None]
OnStep = Callable[[StepRow, int], None]
# The time left follows from the median of so many steps, the latest: responses become longer or shorter as a run goes.
LATEST_STEPS = 20


def numbered(on_phase: OnPhase, total: int) -> OnPhase:
    """The same callback, with each phase's number among `total`."""
    numbers = iter(range(1, total + 1))
    return lambda name: on_phase(f"{next(numbers)} of {total}: {name}")


class _BarAndFacts(Progress):
    """A bar, and below it what the last step measured: in one line a terminal of 80 columns would have cut off both."""

    facts = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        yield Text.from_markup(self.facts)


@contextmanager
def step_progress(label: str, console: Console) -> Iterator[tuple[OnPhase, OnStep]]:
    """A progress bar on a terminal, else one line per event; yields the callbacks for a phase and for a step."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with _BarAndFacts(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=None)
        warned = False
        seconds: deque[float] = deque(maxlen=LATEST_STEPS)

        def line(text: str) -> None:
            if not console.is_terminal:
                console.print(f"{datetime.now():%H:%M:%S}  {label}: {text}", markup=False, soft_wrap=True)

        def on_phase(name: str) -> None:
            nonlocal task
            # A task that has had a total keeps it: a phase without one needs a task of its own.
            progress.remove_task(task)
            task = progress.add_task(f"{label}: {name}", total=None)
            progress.facts = ""
            line(name)

        def on_step(row: StepRow, total: int) -> None:
            seconds.extend([row.numbers[STEP_SECONDS]] if STEP_SECONDS in row.numbers else [])
            facts = _pace(seconds, total - row.step) + _facts(row)
            progress.facts = f"{facts}{_near(row)}"
            progress.update(task, description=f"{label}: training", completed=row.step, total=total)
            line(f"step {row.step}/{total}  {facts}")
            nonlocal warned
            if not warned and (share := row.votes["missing_share_of_voters"]) > MANY_MISSING:
                warned = True
                console.print(
                    f"{label}: warning: {share:.0%} of the rollouts of step {row.step} have no answer and do not vote. "
                    "The run's log shows some of what was not read.",
                    markup=False,
                    soft_wrap=True,
                )

        yield on_phase, on_step


def _pace(seconds: deque[float], left: int) -> str:
    """How long a step takes, and the steps that are left; evaluations and checkpoints come on top."""
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


def _near(row: StepRow) -> str:
    """The signals that may soon end the run, in rich's markup: yellow near the limit, red beyond it."""
    return "".join(
        f"  [{'red' if each.is_passed else 'yellow'}]{each.name} {each.value:.2g}, limit {each.limit:.2g}[/]"
        for each in row.watched
        if each.is_near
    )
