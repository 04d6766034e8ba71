"""`restrain merge`: the whole model of a LoRA run."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from restrain_openrlhf.cli.options import to_folder


class Precision(StrEnum):
    """The types that a whole model can be written in."""

    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


def merge(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A LoRA run's folder, a model's folder, or an adapter's.")],
    out: Annotated[Path | None, to_folder("Output folder.", show_default="RUN/merged")] = None,
    base: Annotated[
        str | None,
        typer.Option(help="Base model, where it is not where training had it.", show_default="the adapter's"),
    ] = None,
    dtype: Annotated[
        Precision, typer.Option(help="Type of the written weights: bfloat16 as vLLM had them, float32 the exact sum.")
    ] = Precision.BFLOAT16,
) -> None:
    """Write a LoRA run's whole model, base and adapter in one. The end of a run does that by itself, in RUN/model."""
    from restrain_openrlhf.run.merge import find_adapter  # noqa: PLC0415 - keeps `restrain --help` quick
    from restrain_openrlhf.run.merge import merge as write  # noqa: PLC0415

    adapter, folder = find_adapter(run, base), out or run / "merged"
    write(adapter, folder, dtype.value)
    typer.echo(f"whole model: {folder}")
