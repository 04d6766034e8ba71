"""`restrain view`: a run's kept rollouts as a page, written as one file."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from restrain_openrlhf.commands.options import GOLD, to_file
from restrain_openrlhf.commands.view.groups import viewed_run
from restrain_openrlhf.config.yaml_file import MIB


def view(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run that keeps rollouts.")],
    gold: Annotated[Path | None, typer.Option(help=GOLD)] = None,
    out: Annotated[
        Path | None, to_file("File to write.", metavar="FILE.html", show_default="RUN/rollouts.html")
    ] = None,
    max_mb: Annotated[int, typer.Option(min=1, help="The most MiB of responses in the file.")] = 50,
) -> None:
    """Write a run's kept rollouts as a page for the browser: filters, answer classes, a prompt's vote over the steps.

    The page is one file, which needs no server and no network. The run may still be training: write the page again for
    its new steps.
    """
    from restrain_openrlhf.commands.view.page import export  # noqa: PLC0415 - keeps `--help` quick

    found, out = viewed_run(run, gold), out or run / "rollouts.html"
    groups, _, damaged = export(found, out, max_mb)
    console = Console(soft_wrap=True, highlight=False)
    for why in damaged:
        console.print(f"Left out: {why}", markup=False)
    console.print(f"{out}: {groups:,} groups, {out.stat().st_size / MIB:.1f} MiB", markup=False)
