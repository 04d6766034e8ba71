"""`restrain demo`: label-free training of a small model on this machine, with a report."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from restrain_openrlhf.commands.options import Overrides, Quiet, to_folder
from restrain_openrlhf.config.command_line import parse_overrides


def demo(
    task: Annotated[
        str,
        typer.Option(
            help="Task. words: English words in German, with text for answers; premise: digit products; addition: "
            "sums, on which most majorities are right; programs: Python functions for answers."
        ),
    ] = "words",
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="restrain, ttrl, srt_offline, srt_easy, or grpo_gold (trains on gold answers). Repeatable.",
            show_default="restrain and ttrl; with addition, restrain",
        ),
    ] = None,
    out: Annotated[Path, to_folder("Output folder.")] = Path("runs/demo"),
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Training steps of 32 prompts x 16 rollouts.", show_default="20; with premise, 40"),
    ] = None,
    overrides: Overrides = None,
    quiet: Quiet = False,
) -> None:
    """Train a small model without labels on the full stack, and report held-out accuracy. Needs no GPU."""
    from restrain_openrlhf.commands.demo.run import Demo, run_demo, sentence  # noqa: PLC0415
    from restrain_openrlhf.data.demo_tasks.tasks import task_named  # noqa: PLC0415
    from restrain_openrlhf.hook.launch.progress import step_progress  # noqa: PLC0415 - keeps `restrain --help` quick

    console = Console(stderr=True, quiet=quiet)
    own = task_named(task)
    chosen = replace(own, methods=tuple(dict.fromkeys(method or own.methods)), steps=steps or own.steps)
    this = Demo(out.absolute(), chosen, parse_overrides(overrides or []))
    finished = all(map(this.trained, chosen.methods))
    with step_progress(task, console) as (on_phase, on_step):
        results, report = run_demo(this, on_phase, on_step)
    for result in results:
        console.print(sentence(result), style="bold", soft_wrap=True)
    console.print(f"report: {report}", soft_wrap=True)
    if finished:
        console.print(
            "Nothing was trained: this demo was finished before. To train again, choose another --out.", soft_wrap=True
        )
