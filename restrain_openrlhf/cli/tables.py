"""`restrain table` and `restrain compare`: results in a table, and number by number beside the paper's."""

from pathlib import Path
from typing import Annotated

import typer

from restrain_openrlhf.cli.options import to_file
from restrain_openrlhf.errors import ConfigError

Runs = Annotated[list[str], typer.Argument(metavar="RUN...", help="Folders of `restrain eval`, or NAME=FOLDER.")]
OutFile = Annotated[Path | None, to_file("Output file.", show_default="the terminal")]
BaseOption = Annotated[
    str | None, typer.Option(help="Hub id of the model that training began from.", show_default="the run folder's")
]
MethodOption = Annotated[
    str | None, typer.Option(help="How the models were trained; `base`: not at all.", show_default="the run folder's")
]
DataOption = Annotated[
    str | None, typer.Option(help="What they were trained on: dapo14k, test-time, …", show_default="the run folder's")
]


def table(
    runs: Runs,
    style: Annotated[str, typer.Option("--format", help="markdown, latex, csv or json.")] = "markdown",
    paper: Annotated[
        Path | None, typer.Option(help="Other numbers than the paper's: CSV with run,benchmark,pass_at_1 (per cent).")
    ] = None,
    no_paper: Annotated[bool, typer.Option("--no-paper", help="Our numbers alone.")] = False,
    base: BaseOption = None,
    method: MethodOption = None,
    data: DataOption = None,
    out: OutFile = None,
) -> None:
    """Print a table of runs by benchmarks: pass@1 with its interval, and the paper's rows of the same models."""
    from restrain_openrlhf.evaluation.subject import Said  # noqa: PLC0415 - keeps `--help` quick
    from restrain_openrlhf.evaluation.table import build_table, read_paper  # noqa: PLC0415
    from restrain_openrlhf.evaluation.table_text import formatter  # noqa: PLC0415

    if paper and no_paper:
        raise ConfigError("--paper and --no-paper are both given. Give one.")
    form = formatter(style)
    given = read_paper(paper) if paper else ({} if no_paper else None)
    made = build_table([_named(word) for word in runs], given, Said(base, method, data))
    if style == "csv":
        for note in made.notes:
            typer.echo(f"note: {note}", err=True)
    _write(form(made), out)


def compare(
    runs: Runs,
    style: Annotated[str, typer.Option("--format", help="markdown, csv or json.")] = "markdown",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    base: BaseOption = None,
    method: MethodOption = None,
    data: DataOption = None,
    out: OutFile = None,
) -> None:
    """Compare runs with the paper, number by number: ours, the paper's, the difference, whether intervals overlap."""
    from restrain_openrlhf.evaluation.compare import compare as made  # noqa: PLC0415
    from restrain_openrlhf.evaluation.comparison_text import formatter  # noqa: PLC0415
    from restrain_openrlhf.evaluation.subject import Said  # noqa: PLC0415

    form = formatter("json" if as_json else style)
    _write(form(made([_named(word) for word in runs], Said(base, method, data))), out)


def _write(text: str, out: Path | None) -> None:
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    else:
        typer.echo(text, nl=False)


def _named(word: str) -> tuple[str, Path]:
    name, equals, folder = word.partition("=")
    return (name, Path(folder)) if equals else (Path(word).resolve().name, Path(word))
