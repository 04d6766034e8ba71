"""`restrain study`: trains several configurations with several seeds and compares them."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from restrain_openrlhf.commands.options import GOLD, Overrides, to_folder
from restrain_openrlhf.config.command_line import find_config, parse_overrides


def study(
    configs: Annotated[
        list[Path], typer.Argument(metavar="CONFIG...", parser=find_config, help="YAML files, or presets' names.")
    ],
    out: Annotated[Path, to_folder("Output folder for runs, tables and figures.")] = Path("runs/study"),
    seeds: Annotated[int, typer.Option(min=1, help="Runs per configuration, with seeds 42, 43, ...")] = 3,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Runs at the same time.", show_default="what the Ray cluster has GPUs for, else 1"),
    ] = None,
    gold: Annotated[
        list[Path] | None,
        typer.Option(help=f"For maj@k by step of the kept rollouts. {GOLD} May be repeated."),
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Train every CONFIG with every seed and compare held-out accuracy. To resume, run the same command.

    Missing reference files are sampled first, each once.
    """
    from restrain_openrlhf.commands.study.plan import StudyRun, plan_study  # noqa: PLC0415 - keeps `restrain --help` quick
    from restrain_openrlhf.commands.study.report import write_study  # noqa: PLC0415
    from restrain_openrlhf.commands.study.runner import StudyListener, run_study, runs_at_a_time  # noqa: PLC0415
    from restrain_openrlhf.commands.study.votes import read_gold  # noqa: PLC0415

    runs = plan_study(configs, seeds, out, parse_overrides(overrides or []))
    answers = read_gold(gold or [], runs)
    at_a_time = jobs or runs_at_a_time(runs)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("study", total=len(runs))

        def on_reference(path: Path) -> None:
            console.print(f"sampling the reference {path}", soft_wrap=True)

        def on_step(run: StudyRun, step: int) -> None:
            progress.update(task, description=f"{run.label}: step {step}")

        def on_end(run: StudyRun, succeeded: bool) -> None:
            progress.advance(task)
            console.print(f"{run.label}: {'done' if succeeded else 'FAILED'}", soft_wrap=True)
            if succeeded:
                write_study(runs, out)

        run_study(runs, at_a_time, StudyListener(on_reference, on_step, on_end))
    write_study(runs, out, answers)
    console.print(f"table: {out / 'table.md'}", soft_wrap=True)
