"""`restrain data`: training sets and benchmarks by name, files for training, and the overlap of the two."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from restrain_openrlhf.cli.data_overlap import overlap
from restrain_openrlhf.cli.options import BenchmarkDir, to_file, to_folder, wide_console
from restrain_openrlhf.data.gold_split import sidecar_path
from restrain_openrlhf.errors import ConfigError, DataError

if TYPE_CHECKING:
    from restrain_openrlhf.data.catalogue import TrainingSet
    from restrain_openrlhf.data.prepare import Prepared

data = typer.Typer(help="List, prepare and compare training sets and benchmarks.", no_args_is_help=True)


@data.command("list")
def list_sets() -> None:
    """List the known training sets and benchmarks."""
    from restrain_openrlhf.data.catalogue import TRAINING_SETS  # noqa: PLC0415 - keeps `--help` quick
    from restrain_openrlhf.evaluation.benchmarks import BENCHMARKS  # noqa: PLC0415

    training = Table("name", "rows", "on the hub", "what", title="training sets")
    for entry in TRAINING_SETS.values():
        training.add_row(entry.name, f"{entry.count or ''}", str(entry.hub or "–"), entry.about)
    tests = Table("name", "problems", "on the hub", "licence", "note", title="benchmarks")
    for known in BENCHMARKS.values():
        tests.add_row(known.name, " or ".join(map(str, known.sizes)), str(known.hub), known.hub.licence, known.note)
    console = wide_console()
    console.print(training)
    console.print(tests)


@data.command()
def prepare(
    name: Annotated[str, typer.Argument(help="A name from `restrain data list`, or `own`.")],
    out: Annotated[Path, to_file("Training file: prompts only. Gold answers go to OUT's .gold.jsonl.")],
    source: Annotated[str, typer.Option(help="hub, or a local file (JSONL, CSV, Parquet) or folder.")] = "hub",
    hub_id: Annotated[str | None, typer.Option(help="Hub id, instead of the known one.")] = None,
    config: Annotated[str | None, typer.Option(help="Configuration of the data set. Needs --hub-id.")] = None,
    split: Annotated[str, typer.Option(help="Split of the data set, with --hub-id.")] = "train",
    prompt_column: Annotated[str | None, typer.Option(help="Column of the prompts.")] = None,
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
    drop_near_duplicates: Annotated[
        bool,
        typer.Option(
            "--drop-near-duplicates",
            help="Of prompts equal up to case, punctuation and white space, keep the first; none if answers conflict.",
        ),
    ] = False,
    expect_digest: Annotated[str | None, typer.Option(help="Refuse prompts with another digest.")] = None,
    first: Annotated[int | None, typer.Option(min=1, help="Write so many prompts, the first of the set.")] = None,
    benchmark_dir: BenchmarkDir = None,
    keep: Annotated[bool, typer.Option("--keep", help="Do nothing where OUT is there already.")] = False,
) -> None:
    """Write a training file without answers and a gold file beside it, joined by the prompt's hash.

    The set is compared with the copy that is known, by the number and the
    digest of its prompts. Another copy is a warning. Near-duplicates are
    counted, and stay unless --drop-near-duplicates. OUT's .about.json records
    all of it.
    """
    from restrain_openrlhf.data.catalogue import training_set  # noqa: PLC0415
    from restrain_openrlhf.data.prepare import Checks  # noqa: PLC0415
    from restrain_openrlhf.data.prepare import prepare as write  # noqa: PLC0415

    _refuse_bad_files(source, out, supervised)
    if keep and all(path.exists() for path in (out, supervised or out)):
        typer.echo(f"{supervised or out}: is there already, and is kept as it is")
        return
    entry = _chosen(training_set(name), hub_id, config, split, prompt_column, answer_column)
    held_out = _held_out(entry, benchmark_dir)
    checks = Checks(any_count, drop_duplicates, drop_near_duplicates, expect_digest, held_out)
    made = write(entry, source, out, checks, supervised, first)
    _say(made)
    if entry.apart_from:
        near = f"for near ones: restrain data overlap {out} --benchmarks {entry.apart_from}"
        typer.echo(f"{made.dropped_held_out} prompts were problems of {entry.apart_from} and are left out; {near}")


def _say(made: "Prepared") -> None:
    typer.echo(f"{made.count:,} prompts: {made.prompts}, digest {made.digest}")
    typer.echo(f"gold: {made.gold or 'none'}; {made.dropped_duplicates} equal prompts dropped")
    near = made.near_duplicates
    typer.echo(
        f"near-duplicates: {near.groups} groups of {near.prompts} prompts{_conflicts(near.conflicting)}; "
        f"{near.dropped} prompts dropped"
    )
    if near.loose_groups != near.groups:
        typer.echo(
            f"equal in letters and digits, whatever their signs: {near.loose_groups} groups"
            f"{_conflicts(near.loose_conflicting)}; not dropped"
        )
    another = made.is_known_copy is False
    typer.echo(f"{'warning: ' if another else ''}{made.whole_set.verdict(made.name)}", err=another)


def _conflicts(groups: int | None) -> str:
    return "" if groups is None else f", {groups} groups with conflicting answers"


def _held_out(entry: "TrainingSet", benchmark_dir: Path | None) -> tuple[str, ...]:
    """The problems that must not be among the prompts. Raises DataError where they cannot be had."""
    from restrain_openrlhf.evaluation.loading import load_benchmark  # noqa: PLC0415
    from restrain_openrlhf.evaluation.problems import without_kind  # noqa: PLC0415

    if entry.apart_from is None:
        return ()
    try:
        return tuple(without_kind(problem) for problem in load_benchmark(entry.apart_from, benchmark_dir).problems)
    except DataError as error:
        raise DataError(
            f"{entry.name}: its prompts are compared with {entry.apart_from}, which is not to be had. {error} Name a "
            "folder that has a copy with --benchmark-dir."
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


def _chosen(
    entry: "TrainingSet", hub_id: str | None, config: str | None, split: str, prompt: str | None, answer: str | None
) -> "TrainingSet":
    """The entry with the user's columns and source. Raises ConfigError for --config without --hub-id."""
    from restrain_openrlhf.data.sources import HubSet  # noqa: PLC0415

    if hub_id is None and config is not None:
        raise ConfigError(f"--config {config}: needs --hub-id.")
    hub = HubSet(hub_id, config, split) if hub_id else entry.hub
    return replace(entry, hub=hub, prompt=prompt or entry.prompt, answer=answer or entry.answer)


@data.command()
def benchmarks(
    names: Annotated[str, typer.Argument(help="Benchmarks, comma-separated.")],
    out: Annotated[Path, to_folder("Folder for NAME.jsonl of each, as --benchmark-dir reads it.")],
    problems_only: Annotated[
        bool, typer.Option("--problems-only", help="Without answers: what `test-time adapt --prompts` reads.")
    ] = False,
) -> None:
    """Copy benchmarks from the hub into a folder. A copy that is there already is kept."""
    from restrain_openrlhf.evaluation.copies import copy_benchmark, copy_problems  # noqa: PLC0415

    refused = []
    for name in dict.fromkeys(word.strip() for word in names.split(",")):
        try:
            typer.echo((copy_problems if problems_only else copy_benchmark)(name, out))
        except DataError as error:
            # The others are fetched all the same: a gated set holds none of them up.
            refused.append(str(error))
    if refused:
        raise DataError(" ".join(refused))


data.command()(overlap)
