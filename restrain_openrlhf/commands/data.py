"""`restrain data`: training sets and benchmarks by name, files for training, and reference files."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from restrain_openrlhf.commands.options import BenchmarkDir, to_file, to_folder, wide_console
from restrain_openrlhf.data.benchmarks import BENCHMARKS, copy_benchmark, copy_problems, load_benchmark
from restrain_openrlhf.data.gold import sidecar_path
from restrain_openrlhf.data.prepare import Prepared
from restrain_openrlhf.data.prepare import prepare as write
from restrain_openrlhf.data.problems import without_kind
from restrain_openrlhf.data.prompt_reader import text_of
from restrain_openrlhf.data.sources import TRAINING_SETS, HubSet, TrainingSet, training_set
from restrain_openrlhf.errors import ConfigError, DataError
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.offline_pass import merge, subset

data = typer.Typer(
    name="data",
    help="List and prepare training sets and benchmarks; join and cut reference files.",
    no_args_is_help=True,
)


@data.command("list")
def list_sets() -> None:
    """List the known training sets and benchmarks."""
    # A hub id is copied from here: it may be broken, and must not be cut off.
    hub, licence = Column("on the hub", overflow="fold"), Column("licence", overflow="fold")
    training = Table("name", "rows", hub, "what", title="training sets")
    for entry in TRAINING_SETS.values():
        training.add_row(entry.name, f"{entry.count or ''}", str(entry.hub or "–"), entry.about)
    tests = Table("name", "problems", hub.copy(), licence, "note", title="benchmarks")
    for known in BENCHMARKS.values():
        tests.add_row(known.name, " or ".join(map(str, known.sizes)), str(known.hub or "–"), known.licence, known.note)
    console = wide_console()
    console.print(training)
    console.print(tests)


@data.command()
def prepare(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A name from `restrain data list`, or `own` for a set of yours.")
    ],
    out: Annotated[Path, to_file("Training file (JSONL): prompts only. Gold answers go to OUT's .gold.jsonl.")],
    source: Annotated[
        str, typer.Option(help="hub, or a local table (JSONL, JSON, CSV, TSV, Parquet, text) or folder.")
    ] = "hub",
    hub_id: Annotated[
        str | None, typer.Option(help="Hub id, instead of the set's own; its split `train` is read.")
    ] = None,
    prompt_column: Annotated[str | None, typer.Option(help="Column of the prompts, or several with commas.")] = None,
    answer_column: Annotated[str | None, typer.Option(help="Column of the gold answers.")] = None,
    supervised: Annotated[
        Path | None, to_file("Also write prompts with gold answers to this file, for grpo_gold.")
    ] = None,
    any_count: Annotated[
        bool, typer.Option("--any-count", help="Accept a number of rows that differs from the known set's.")
    ] = False,
    drop_duplicates: Annotated[
        bool, typer.Option("--drop-duplicates", help="Keep the first of equal prompts.")
    ] = False,
    first: Annotated[
        int | None, typer.Option(min=1, help="Write only this many prompts, the first of the set.")
    ] = None,
    benchmark_dir: BenchmarkDir = None,
    keep: Annotated[bool, typer.Option("--keep", help="Do nothing if OUT exists.")] = False,
) -> None:
    """Write a training file without answers and a gold file beside it, joined by the prompt's hash.

    The set is compared with the copy that is known, by the number and the
    digest of its prompts. Another copy is a warning. OUT's .about.json records
    all of it.
    """
    _refuse_bad_files(source, out, supervised)
    if keep and all(path.exists() for path in (out, supervised or out)):
        typer.echo(f"{supervised or out}: is there already, and is kept as it is")
        return
    entry = training_set(name)
    hub = HubSet(hub_id) if hub_id else entry.hub
    entry = replace(entry, hub=hub, prompt=prompt_column or entry.prompt, answer=answer_column or entry.answer)
    made = write(
        entry,
        source,
        out,
        supervised,
        first,
        _held_out(entry, benchmark_dir),
        any_count=any_count,
        drop_duplicates=drop_duplicates,
    )
    _print_summary(made)
    if entry.apart_from:
        typer.echo(f"{made.dropped_held_out} prompts were problems of {entry.apart_from} and are left out")


def _print_summary(made: Prepared) -> None:
    typer.echo(made.read)
    typer.echo(f"{made.count:,} prompts: {made.prompts}, digest {made.digest}")
    typer.echo(f"gold: {made.gold or 'none'}; {made.dropped_duplicates} equal prompts dropped")
    another = made.whole_set.is_another
    typer.echo(f"{'warning: ' if another else ''}{made.whole_set.verdict(made.name)}", err=another)


def _held_out(entry: TrainingSet, benchmark_dir: Path | None) -> tuple[str, ...]:
    """The problems that must not be among the prompts. Raises DataError if they cannot be loaded."""
    if entry.apart_from is None:
        return ()
    try:
        return tuple(
            text_of(without_kind(problem)) for problem in load_benchmark(entry.apart_from, benchmark_dir).problems
        )
    except DataError as error:
        raise DataError(
            f"{entry.name}: its prompts must be compared with {entry.apart_from}, which could not be read. {error} "
            "Name a folder that has a copy with --benchmark-dir."
        ) from None


def _refuse_bad_files(source: str, out: Path, supervised: Path | None) -> None:
    for option, path in (("--out", out), ("--out", sidecar_path(out)), ("--supervised", supervised)):
        if path is None:
            continue
        if path.suffix != ".jsonl":
            raise ConfigError(f"{option} {path}: name a .jsonl file; that is how it is written.")
        if source != "hub" and Path(source).resolve() == path.resolve():
            raise ConfigError(f"{option} {path}: is the input file. Name another.")
    if supervised and supervised.resolve() in {out.resolve(), sidecar_path(out).resolve()}:
        raise ConfigError(f"--supervised {supervised}: is one of the files of --out. Name another.")


@data.command()
def benchmarks(
    names: Annotated[str, typer.Argument(metavar="NAME,...", help="Benchmarks, comma-separated.")],
    out: Annotated[Path, to_folder("Folder to write: one NAME.jsonl per benchmark, for --benchmark-dir.")],
    problems_only: Annotated[
        bool, typer.Option("--problems-only", help="Leave out answers, for `test-time adapt --prompts`.")
    ] = False,
) -> None:
    """Copy benchmarks from the hub into a folder. Existing copies are kept."""
    refused = []
    for name in dict.fromkeys(word.strip() for word in names.split(",")):
        try:
            typer.echo((copy_problems if problems_only else copy_benchmark)(name, out))
        except DataError as error:
            # A set that fails, such as a gated one, must not keep the others from being copied.
            refused.append(str(error))
    if refused:
        raise DataError(" ".join(refused))


@data.command()
def merge_reference(
    shards: Annotated[list[Path], typer.Argument(metavar="SHARD...", help="All shards of the pass.")],
    out: Annotated[Path, to_file("The merged reference file.")],
) -> None:
    """Merge the shards of an offline pass. Every shard must be complete, and all must be of one pass."""
    count = merge(shards, out)
    Console(stderr=True).print(f"reference: {out}, {count} prompts", soft_wrap=True)


@data.command()
def subset_reference(
    artifact: Annotated[Path, typer.Argument(metavar="REFERENCE", help="A complete reference file.")],
    out: Annotated[Path, to_file("The smaller reference file.")],
    n: Annotated[int, typer.Option(min=1, help="Keep the first N rollouts of each prompt.")],
) -> None:
    """Make a reference file for fewer rollouts, without sampling again."""
    count = subset(load_reference(artifact), out, n)
    Console(stderr=True).print(f"reference: {out}, {count} prompts", soft_wrap=True)
