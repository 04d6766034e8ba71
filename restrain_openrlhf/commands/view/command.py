"""`restrain view`: a run's kept rollouts as a page, served on this machine or written as one file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from restrain_openrlhf.commands.options import GOLD, to_file
from restrain_openrlhf.errors import ConfigError

if TYPE_CHECKING:
    from restrain_openrlhf.commands.view.source import Material


def view(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run that keeps rollouts.")],
    beside: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Another run, shown beside this one on the same prompts.")
    ] = None,
    gold: Annotated[Path | None, typer.Option(help=GOLD)] = None,
    export: Annotated[
        Path | None, to_file("Write one self-contained file instead of serving the page.", metavar="FILE.html")
    ] = None,
    max_mb: Annotated[int, typer.Option(min=1, help="With --export: the most MiB of responses in the file.")] = 50,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in, with a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port to listen on.", show_default="a free one"),
    ] = None,
) -> None:
    """Look at a run's kept rollouts: filters, answer classes side by side, a prompt's vote over the steps.

    For a folder that contains runs, their folders are printed. The run may still be training: load the page again for
    its new steps. Ctrl-C ends the command.
    """
    from restrain_openrlhf.commands.view.source import material  # noqa: PLC0415 - keeps `--help` quick

    if export:
        # Reading takes minutes, so refuse first a place that cannot be written, or a file that would be lost.
        if export.exists():
            ways = ("exists already. Name another, or remove it", "is a folder. Name the file to write")
            raise ConfigError(f"--export {export}: {ways[export.is_dir()]}.")
        if not export.absolute().parent.is_dir():
            raise ConfigError(
                f"--export {export}: its folder does not exist. Create it, or name a file in another folder."
            )
        _export(material(run, gold, beside), export, max_mb)
    else:
        _serve(material(run, gold, beside), host, port or 0)


def _export(found: "Material", out: Path, max_mb: int) -> None:
    from restrain_openrlhf.commands.view.page import export  # noqa: PLC0415
    from restrain_openrlhf.config.yaml_file import MIB  # noqa: PLC0415

    groups, with_responses, damaged = export(found, out, max_mb)
    console = Console(soft_wrap=True, highlight=False)
    for why in damaged:
        console.print(f"Left out: {why}", markup=False)
    console.print(f"{out}: {groups:,} groups, {out.stat().st_size / MIB:.1f} MiB", markup=False)
    if with_responses < groups:
        left_out = f"responses of {groups - with_responses:,} groups were left out; --max-mb allows more"
        console.print(left_out, markup=False)


def _serve(found: "Material", host: str, port: int) -> None:
    try:
        from restrain_openrlhf.commands.view.server import serve  # noqa: PLC0415 - optional
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"The page's server needs {error.name}, which is not installed. Install it with `pip install "
            "restrain-openrlhf[service]`, or write the page to a file with --export."
        ) from None
    from restrain_openrlhf.commands.view.source import ViewedRuns  # noqa: PLC0415

    serve(ViewedRuns(found), host, port)
