"""`restrain study`: trains several configurations with several seeds and compares them."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from restrain_openrlhf.commands.options import Overrides, to_folder
from restrain_openrlhf.config.command_line import find_config, parse_overrides


def study(
    configs: Annotated[
        list[Path], typer.Argument(metavar="CONFIG...", parser=find_config, help="YAML files, or presets' names.")
    ],
    out: Annotated[Path, to_folder("Output folder for runs, tables and figures.")] = Path("runs/study"),
    seeds: Annotated[int, typer.Option(min=1, help="Runs per configuration, with seeds 42, 43 and so on.")] = 3,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at the same time.")] = 1,
    overrides: Overrides = None,
) -> None:
    """Train every CONFIG with every seed and compare held-out accuracy. To resume, run the same command.

    Missing reference files are sampled first, each once.
    """
    from restrain_openrlhf.commands.study.plan import plan_study  # noqa: PLC0415 - keeps `restrain --help` quick
    from restrain_openrlhf.commands.study.report import write_study  # noqa: PLC0415
    from restrain_openrlhf.commands.study.runner import run_study  # noqa: PLC0415

    runs = plan_study(configs, seeds, out, parse_overrides(overrides or []))
    console = Console(stderr=True, soft_wrap=True)
    run_study(runs, jobs, console.print, lambda: write_study(runs, out))
    write_study(runs, out)
    console.print(f"table: {out / 'table.md'}")
