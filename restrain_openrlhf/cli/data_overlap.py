"""`restrain data overlap`: which benchmark problems share runs of words with training prompts, and how much."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from restrain_openrlhf.cli.options import BenchmarkDir, to_file, wide_console
from restrain_openrlhf.data.contamination import NGRAM
from restrain_openrlhf.errors import ConfigError

if TYPE_CHECKING:
    from restrain_openrlhf.data.overlap_report import BandCounts


def overlap(
    prompts: Annotated[
        Path, typer.Argument(metavar="PROMPTS", help="JSONL, CSV or Parquet, such as OUT of `data prepare`.")
    ],
    benchmarks: Annotated[str, typer.Option(help="Benchmarks, comma-separated: names, NAME=PATH or paths.")],
    benchmark_dir: BenchmarkDir = None,
    prompt_column: Annotated[str, typer.Option(help="Column of the prompts.")] = "problem",
    n: Annotated[int, typer.Option(min=1, help="n-gram length, in words.")] = NGRAM,
    examples: Annotated[int, typer.Option(min=0, help="Show so many pairs of each band, those that share most.")] = 0,
    out: Annotated[Path | None, to_file("Write every pair with its texts to this JSONL file.")] = None,
) -> None:
    """Count benchmark problems that share runs of words with a training prompt, by how much they share.

    A problem's share is the part of its n-grams that the nearest prompt has.
    Every problem is in one band: equal (the same words in the same order),
    0.5-1, 0.3-0.5, 0-0.3, or none. A small share is often a usual turn of
    phrase: read the pairs (--examples, --out) before you call a problem leaked.
    """
    from restrain_openrlhf.data.catalogue import OWN  # noqa: PLC0415
    from restrain_openrlhf.data.contamination import Band, overlaps  # noqa: PLC0415
    from restrain_openrlhf.data.entries import read_entries  # noqa: PLC0415
    from restrain_openrlhf.data.jsonl import write_rows  # noqa: PLC0415
    from restrain_openrlhf.data.overlap_report import band_counts, nearest_pairs, pair_lines  # noqa: PLC0415
    from restrain_openrlhf.evaluation.loading import load_benchmark  # noqa: PLC0415

    if out and out.resolve() == prompts.resolve():
        raise ConfigError(f"--out {out}: is the file of the prompts. Name another.")
    loaded = [load_benchmark(word.strip(), benchmark_dir) for word in benchmarks.split(",") if word.strip()]
    if not loaded:
        raise ConfigError(f"--benchmarks {benchmarks!r}: give one or more names or paths, separated by commas.")
    if len({entry.name for entry in loaded}) < len(loaded):
        raise ConfigError(f"--benchmarks {benchmarks!r}: two have one name. Give each once, files as NAME=PATH.")
    source = replace(OWN, name=str(prompts), prompt=prompt_column)
    rows = [(entry.id, entry.problem) for entry in read_entries(source, str(prompts))]
    tests = {entry.name: [(problem.id, problem.problem) for problem in entry.problems] for entry in loaded}
    found = overlaps(rows, tests, n)
    if out:
        write_rows(out, found)
    wide_console().print(_band_table(list(band_counts(found, tests, n)), n))
    for band in Band:
        for pair in nearest_pairs(found, band, examples):
            typer.echo("\n".join(pair_lines(pair)))


def _band_table(counts: "Sequence[BandCounts]", n: int) -> Table:
    from restrain_openrlhf.data.contamination import Band  # noqa: PLC0415

    table = Table(
        "benchmark",
        "problems",
        *(f"{band}" for band in Band),
        "none",
        title=f"problems by the share of their runs of {n} words that one prompt has",
        title_justify="left",
    )
    for count in counts:
        short = f" ({count.short} shorter than {n} words)" if count.short else ""
        bands = (str(count.by_band.get(band, 0)) for band in Band)
        table.add_row(count.benchmark, str(count.problems), *bands, f"{count.none}{short}")
    return table
