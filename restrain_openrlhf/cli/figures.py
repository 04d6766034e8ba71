"""`restrain effect` and `plot`: figures from evaluated runs and from training runs."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from restrain_openrlhf.cli.options import to_folder


def effect(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of `restrain eval --label ...`.")],
    x: Annotated[str, typer.Option(help="Label on the x axis: step, sigma, delta, kappa, ...")],
    out: Annotated[Path, to_folder("Output folder, for the figure and its table.")],
    by: Annotated[str | None, typer.Option(help="Label that separates the lines, such as method.")] = None,
) -> None:
    """Plot accuracy against a label of evaluated runs, such as the training step, σ, δ or κ."""
    from restrain_openrlhf.evaluation.result import load_results  # noqa: PLC0415
    from restrain_openrlhf.report.paper_figures import points, save_effect  # noqa: PLC0415

    results = [result for run in runs for result in load_results(run)]
    for path in save_effect(points(results, x, by), x, out):
        Console().print(path, soft_wrap=True)


def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    out: Annotated[Path | None, to_folder("Output folder.", show_default="the first run's plots/")] = None,
) -> None:
    """Plot training curves and vote statistics of training runs, as PNG, and say at which step each collapses."""
    from restrain_openrlhf.report.curves import load_curves, save_run_figures  # noqa: PLC0415 - imports matplotlib

    curves = [load_curves(run) for run in runs]
    console = Console(soft_wrap=True, highlight=False)
    for run in curves:
        console.print(f"{run.name}: Model Collapse Step: {run.collapse}", markup=False)
    for path in save_run_figures(curves, out or runs[0] / "plots"):
        console.print(path)
