"""`restrain view`: a run's kept rollouts as a page in one file."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from restrain_openrlhf.commands.options import GOLD, to_file


def view(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run that keeps rollouts.")],
    gold: Annotated[Path | None, typer.Option(help=GOLD)] = None,
    out: Annotated[
        Path | None, to_file("The page, which needs no other file.", metavar="FILE.html", show_default="RUN/view.html")
    ] = None,
    max_mb: Annotated[int, typer.Option(min=1, help="MiB of responses in the file, at most.")] = 50,
) -> None:
    """Write a run's kept rollouts as a page: filters, answer classes side by side, a prompt's vote over the steps.

    The run may still be going on: run the command again for its new steps.
    """
    from restrain_openrlhf.commands.view.export import MIB, export  # noqa: PLC0415 - keeps `--help` quick
    from restrain_openrlhf.commands.view.source import material  # noqa: PLC0415

    found, page = material(run, gold), out or run / "view.html"
    groups, with_responses = export(found, page, max_mb)
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{page}: {groups:,} groups, {page.stat().st_size / MIB:.1f} MiB", markup=False)
    if with_responses < groups:
        left_out = f"responses of {groups - with_responses:,} groups were left out; --max-mb allows more"
        console.print(left_out, markup=False)
