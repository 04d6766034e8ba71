"""`restrain plot`: pictures of one or several runs."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")],
    out: Annotated[
        Path | None, typer.Option(help="Where the PNG files go.", show_default="the first run's plots/")
    ] = None,
) -> None:
    """Draw training curves and vote statistics of runs as PNG."""
    from restrain_openrlhf.report.curves import load_curves, save_run_figures  # noqa: PLC0415 - imports matplotlib

    for path in save_run_figures([load_curves(run) for run in runs], out or runs[0] / "plots"):
        Console().print(path, soft_wrap=True)
