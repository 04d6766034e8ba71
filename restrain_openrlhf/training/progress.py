"""A run's progress on the terminal: a bar, or a line for each phase and step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from restrain_openrlhf.answers.votes import MANY_MISSING
from restrain_openrlhf.records.metrics import StepRow
from restrain_openrlhf.records.mlflow_run import UNSENT


@contextmanager
def step_progress(
    label: str, console: Console
) -> Iterator[tuple[Callable[[str], None], Callable[[StepRow, int], None]]]:
    """A progress bar on a terminal, else one line per event; yields the callbacks for a phase and for a step."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[facts]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=None, facts="")
        warned = False

        def on_phase(name: str) -> None:
            nonlocal task
            # A task that has had a total keeps it: a phase without one needs a task of its own.
            progress.remove_task(task)
            task = progress.add_task(f"{label}: {name}", total=None, facts="")
            if not console.is_terminal:
                console.print(f"{label}: {name}", soft_wrap=True)

        def on_step(row: StepRow, total: int) -> None:
            progress.update(task, description=f"{label}: training", completed=row.step, total=total, facts=_facts(row))
            if not console.is_terminal:
                console.print(f"{label}: step {row.step}/{total}  {_facts(row)}", soft_wrap=True)
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


def _facts(row: StepRow) -> str:
    votes = row.votes
    lacking = row.numbers.get(UNSENT)
    return (
        f"majority {votes['majority_share_mean']:.2f}  penalised {votes['low_consensus_share']:.2f}  "
        f"missing {votes['missing_share_of_voters']:.2f}  top answer {votes['top_answer_share']:.2f}"
    ) + "".join(
        [
            f"  MLflow lacks {lacking:.0f} rows" if lacking else "",
            f"  NOT FINITE: {', '.join(row.broken)}" if row.broken else "",
        ]
    )
