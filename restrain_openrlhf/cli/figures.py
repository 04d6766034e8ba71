"""`restrain analyze`, `effect` and `plot`: figures from rollouts, from evaluated runs and from training runs."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def analyze(
    rollouts: Annotated[Path, typer.Argument(metavar="ROLLOUTS.jsonl", help="Rows {id, problem, responses, answer?}.")],
    out: Annotated[Path, typer.Option(help="Folder for reliability.png and reliability.csv.")],
    gold: Annotated[Path | None, typer.Option(help="Gold by problem: {problem, answer} rows, or a sidecar.")] = None,
) -> None:
    """Draw how reliable majorities are: pass@n and the majority's accuracy by the majority's size."""
    from restrain_openrlhf.evaluation.reliability import reliability  # noqa: PLC0415 - keeps `--help` quick
    from restrain_openrlhf.evaluation.rollout_file import grade_rollouts, read_rollouts  # noqa: PLC0415
    from restrain_openrlhf.report.paper_figures import save_reliability  # noqa: PLC0415

    rows = reliability(grade_rollouts(read_rollouts(rollouts), rollouts, gold))
    console = Console(soft_wrap=True, highlight=False)
    for row in rows:
        console.print(
            f"majority of {row.size} of {row.n}: {row.problems} problems, pass@{row.n} {row.pass_at_n:.1%}, "
            f"majority right {row.majority_accuracy:.1%} [{row.majority_low:.1%}, {row.majority_high:.1%}]",
            markup=False,
        )
    for path in save_reliability(rows, rollouts.stem, out):
        console.print(path, soft_wrap=True)


def effect(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of `restrain eval --label ...`.")],
    x: Annotated[str, typer.Option(help="The label along the axis: step, sigma, delta, kappa, ...")],
    out: Annotated[Path, typer.Option(help="Folder for the figure and its table.")],
    by: Annotated[str | None, typer.Option(help="The label that tells lines apart, such as method.")] = None,
) -> None:
    """Draw accuracy against a label of evaluated runs: training curves by method, effects of σ, δ and κ."""
    from restrain_openrlhf.evaluation.result import load_results  # noqa: PLC0415
    from restrain_openrlhf.report.paper_figures import points, save_effect  # noqa: PLC0415

    results = [result for run in runs for result in load_results(run)]
    for path in save_effect(points(results, x, by), x, out):
        Console().print(path, soft_wrap=True)


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
