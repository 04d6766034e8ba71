"""`restrain train`, `restrain show` and `restrain presets`."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from restrain_openrlhf.cli.options import ConfigFile, Overrides
from restrain_openrlhf.config.command_line import parse_overrides, preset_names
from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.hook.host_flags import host_flags
from restrain_openrlhf.run.metrics import StepRow
from restrain_openrlhf.tracking.writers import UNSENT
from restrain_openrlhf.vote_statistics import MANY_MISSING


def train(config: ConfigFile, overrides: Overrides = None) -> None:
    """Train a policy with OpenRLHF and RESTRAIN. To resume a run that was stopped, run the same command."""
    from restrain_openrlhf.run.train import train as run  # noqa: PLC0415 - keeps `restrain --help` quick

    resolved = load_run_config(config, parse_overrides(overrides or []))
    console = Console(stderr=True)
    with step_progress(resolved.run_dir.name, console) as (on_phase, on_step):
        on_phase("starting Ray and vLLM")
        folder = run(resolved, on_step)
    console.print(f"trained model: {folder.model}\nmetrics: {folder.metrics}", soft_wrap=True)


def show(
    config: ConfigFile,
    overrides: Overrides = None,
    memory: Annotated[bool, typer.Option("--memory", help="Print an estimate of the memory instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --memory: print JSON.")] = False,
    gpu_memory: Annotated[
        float | None,
        typer.Option(metavar="GIB", min=1, help="With --memory: a GPU's memory.", show_default="this machine's"),
    ] = None,
    model_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --memory: the model's config.json.", show_default="as far as known here"
        ),
    ] = None,
) -> None:
    """Print the resolved method and the exact OpenRLHF command, or with --memory what it needs. Starts nothing."""
    from restrain_openrlhf.hook.compatibility import refuse_settings  # noqa: PLC0415 - keeps `restrain --help` quick
    from restrain_openrlhf.hook.devices import detect  # noqa: PLC0415 - imports torch
    from restrain_openrlhf.hook.host_flags import host_parser, parse, to_arguments  # noqa: PLC0415
    from restrain_openrlhf.hook.recorded_flags import VERSION, is_installed, recorded_parser  # noqa: PLC0415
    from restrain_openrlhf.hook.this_machine import on_this_machine  # noqa: PLC0415
    from restrain_openrlhf.run.folder import RunFolder  # noqa: PLC0415
    from restrain_openrlhf.run.train import command  # noqa: PLC0415

    if not memory and (as_json or gpu_memory is not None or model_config is not None):
        raise ConfigError("--json, --gpu-memory and --model-config belong to --memory. Add it.")
    resolved = load_run_config(config, parse_overrides(overrides or []))
    parser = host_parser() if is_installed() else recorded_parser()
    words = to_arguments({**detect().host_flags, **host_flags(on_this_machine(resolved, parser))}, parser)
    flags = vars(parse(words, parser))
    refuse_settings(resolved, flags)
    if memory:
        typer.echo(_memory(flags, gpu_memory, model_config, as_json))
        return
    typer.echo(_method_block(resolved))
    typer.echo(shlex.join(command(RunFolder(resolved.run_dir), words)).replace(" --", " \\\n  --"))
    if not is_installed():
        typer.echo(f"OpenRLHF is not installed: the flags were checked against the record of {VERSION}.", err=True)


def _memory(flags: Mapping[str, object], gpu_memory: float | None, model_config: Path | None, as_json: bool) -> str:
    from restrain_openrlhf.memory import GIB, estimate, shape_of  # noqa: PLC0415 - keeps `restrain --help` quick
    from restrain_openrlhf.memory.gpu import visible_memory  # noqa: PLC0415
    from restrain_openrlhf.memory.table import as_markdown, to_json  # noqa: PLC0415

    model = str(flags["actor.model_name_or_path"])
    shape = shape_of(model, model_config)
    found = estimate(flags, shape, int(gpu_memory * GIB) if gpu_memory is not None else visible_memory())
    if as_json:
        return to_json(found)
    return f"{model}: {shape.parameters:,} parameters. GiB (2^30 bytes) on each GPU.\n\n{as_markdown(found)}"


def presets() -> None:
    """List the presets. A preset's name can stand for CONFIG in every command."""
    typer.echo("\n".join(preset_names()))


def _method_block(config: RunConfig) -> str:
    block = {"method": config.method.model_dump(mode="json"), "reference": str(config.reference or "")}
    return yaml.safe_dump(block, sort_keys=False)


@contextmanager
def step_progress(
    label: str, console: Console
) -> Iterator[tuple[Callable[[str], None], Callable[[StepRow, int], None]]]:
    """A progress bar on a terminal, else one line per event; yields the callbacks for a phase and for a step."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[facts]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=None, facts="")
        warned = False

        def on_phase(name: str) -> None:
            nonlocal task
            # A task that has had a total keeps it: a phase without one needs a task of its own.
            progress.remove_task(task)
            task = progress.add_task(f"{label}: {name}", total=None, facts="")
            if not console.is_terminal:
                console.print(f"{label}: {name}", soft_wrap=True)

        def on_step(row: StepRow, total: int) -> None:
            progress.update(task, description=f"{label}: training", completed=row.step, total=total, facts=_facts(row))
            if not console.is_terminal:
                console.print(f"{label}: step {row.step}/{total}  {_facts(row)}", soft_wrap=True)
            nonlocal warned
            if not warned and (share := row.votes["missing_share_of_voters"]) > MANY_MISSING:
                warned = True
                console.print(
                    f"{label}: warning: {share:.0%} of the rollouts of step {row.step} have no answer and do not vote. "
                    "The run's log shows some of what was not read.",
                    markup=False,
                    soft_wrap=True,
                )

        yield on_phase, on_step


def _facts(row: StepRow) -> str:
    votes = row.votes
    lacking = row.numbers.get(UNSENT)
    return (
        f"majority {votes['majority_share_mean']:.2f}  penalised {votes['low_consensus_share']:.2f}  "
        f"missing {votes['missing_share_of_voters']:.2f}  top answer {votes['top_answer_share']:.2f}"
    ) + "".join(
        [
            f"  MLflow lacks {lacking:.0f} rows" if lacking else "",
            f"  NOT FINITE: {', '.join(row.broken)}" if row.broken else "",
        ]
    )
