"""`restrain view`: a run's kept rollouts as a page, served on this machine or written as one file."""

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from restrain_openrlhf.cli.options import GOLD, to_file
from restrain_openrlhf.errors import ConfigError

if TYPE_CHECKING:
    from restrain_openrlhf.view.material import Material


def view(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run that keeps rollouts.")],
    gold: Annotated[Path | None, typer.Option(help=GOLD)] = None,
    export: Annotated[
        Path | None, to_file("Write one self-contained file, and serve nothing.", metavar="FILE.html")
    ] = None,
    max_mb: Annotated[int, typer.Option(min=1, help="With --export: MiB of responses in the file, at most.")] = 50,
    host: Annotated[
        str, typer.Option(help="Address to listen on. With another than this, others may read the rollouts.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port to listen on.", show_default="a free one")
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = False,
) -> None:
    """Look at a run's kept rollouts: filters, answer classes side by side, a prompt's vote over the steps.

    The run may still be going on: load the page again for its new steps. Ctrl-C ends the command.
    """
    from restrain_openrlhf.view.material import material  # noqa: PLC0415 - keeps `--help` quick

    if export:
        _refuse_export(export)
        _export(material(run, gold), export, max_mb)
    else:
        _serve(material(run, gold), host, port or 0, open_browser)


def _refuse_export(out: Path) -> None:
    """Before minutes of reading: a place that cannot be written, and a file that somebody may need."""
    if out.exists():
        what = "is a folder. Name the file to write" if out.is_dir() else "is there already. Name another, or remove it"
        raise ConfigError(f"--export {out}: {what}.")
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"--export {out}: its folder is not there. Make it, or name a file in another.")


def _export(found: "Material", out: Path, max_mb: int) -> None:
    from restrain_openrlhf.view.export import MIB, export  # noqa: PLC0415

    made = export(found, out, max_mb)
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{out}: {made.groups:,} groups, {made.bytes / MIB:.1f} MiB", markup=False)
    if made.with_responses < made.groups:
        left_out = f"responses of {made.groups - made.with_responses:,} groups were left out; --max-mb allows more"
        console.print(left_out, markup=False)


def _serve(found: "Material", host: str, port: int, open_browser: bool) -> None:
    try:
        from restrain_openrlhf.view.server import application, serve  # noqa: PLC0415 - optional
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"The page's server needs {error.name}, which is not installed. Install restrain-openrlhf[serve], or write "
            "the page to a file with --export."
        ) from None
    from restrain_openrlhf.view.source import ViewedRun  # noqa: PLC0415

    def tell(address: str) -> None:
        Console(soft_wrap=True, highlight=False).print(f"{address} (Ctrl-C ends it)", markup=False)
        if open_browser:
            webbrowser.open(address)

    serve(application(ViewedRun(found), host), host, port, tell)
