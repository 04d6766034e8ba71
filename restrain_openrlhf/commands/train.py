"""`restrain train`, and the commands before it: `restrain presets`, `restrain show` and `restrain reference`."""

import shlex
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from restrain_openrlhf.commands.options import (
    ConfigFile,
    Overrides,
    Quiet,
    ShardOption,
    Typed,
    sampling_progress,
    with_options,
)
from restrain_openrlhf.config.checks import refuse_settings
from restrain_openrlhf.config.command_line import find_config, parse_overrides, preset_names
from restrain_openrlhf.config.documents import FLAGS, HOURS_FILE, dump_yaml, typed
from restrain_openrlhf.config.gpu_layout import GpuLayout
from restrain_openrlhf.config.host_flags import flags_of
from restrain_openrlhf.config.memory.estimate import estimate
from restrain_openrlhf.config.memory.lines import GIB, as_markdown
from restrain_openrlhf.config.memory.shape import shape_of
from restrain_openrlhf.config.this_machine import HostRun, visible_memory, why_small_disk, why_unsupported
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.hook.launch import train as launch
from restrain_openrlhf.hook.launch.progress import StepProgress
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.machine.host_releases import NEWEST, check_version, version_of
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.reference.artifact import load_reference, missing_in
from restrain_openrlhf.reference.offline_pass import OfflineOptions, OfflinePass, merge, offline_pass
from restrain_openrlhf.reference.prompts import note_on_run
from restrain_openrlhf.reference.sampling_pass import WHOLE, Engine, Shard, ShardedPass

# Options that `restrain reference` requires without CONFIG.
REQUIRED = ("model", "prompts", "out")


def train(config: ConfigFile, overrides: Overrides = None, quiet: Quiet = False) -> None:
    """Train a policy with OpenRLHF and RESTRAIN. To resume a run that was stopped, run the same command."""
    resolved = load_run_config(config, parse_overrides(overrides or []))
    console, finished = Console(stderr=True, quiet=quiet), RunFolder(resolved.run_dir).completed.exists()
    shown, on_read = StepProgress(resolved.run_dir.name, console), partial(console.print, markup=False, soft_wrap=True)
    shown.on_phase("checking the configuration, the model, the prompts and the reference")
    folder = launch.train(resolved, shown.on_step, on_phase=shown.on_phase, on_read=on_read)
    completion = folder.completion()
    assert completion is not None, "train returns completed runs"
    if completion.ending:
        console.print(completion.ending, markup=False, soft_wrap=True)
    if completion.by_labels:
        console.print(str(completion.by_labels), markup=False, soft_wrap=True)
    console.print(f"trained model: {folder.trained}\nmetrics: {folder.metrics}", soft_wrap=True)
    if finished:
        console.print(
            "Nothing was trained: this run was finished before. To train again, choose another run_dir.", soft_wrap=True
        )


def show(
    config: ConfigFile,
    overrides: Overrides = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Print an estimate of the memory that the run needs instead.")
    ] = False,
    gpu_memory: Annotated[
        float | None,
        typer.Option(metavar="GIB", min=1, help="With --memory: the memory of one GPU.", show_default="this machine's"),
    ] = None,
) -> None:
    """Print the whole method and the exact OpenRLHF command, or, with --memory, its GPU memory. Starts nothing."""
    if not memory and gpu_memory is not None:
        raise ConfigError("--gpu-memory works only with --memory. Add it.")
    resolved = load_run_config(config, parse_overrides(overrides or []))
    if version_of("openrlhf"):
        check_version()
    run = HostRun.of(resolved)
    refuse_settings(resolved, run.flags)
    if memory:
        typer.echo(_memory(run.flags, gpu_memory))
    else:
        _print_command(run)
    if note := note_on_run(run.config, run.flags):
        typer.echo(note, err=True)
    if reason := why_unsupported(detect(), run.flags) or why_small_disk(run.flags, resolved.steps):
        typer.echo(f"This machine cannot run it: {reason}", err=True)


def _print_command(run: HostRun) -> None:
    typer.echo(dump_yaml(run.config.model_dump(mode="json", exclude={FLAGS}), sort_keys=False))
    words = launch.command(RunFolder(run.config.run_dir), run.words())
    typer.echo(shlex.join(words).replace(" --", " \\\n  --"))
    if not version_of("openrlhf"):
        record = f"the flags were checked against the record of {NEWEST.version}"
        typer.echo(f"OpenRLHF is not installed: {record}.", err=True)


def _memory(flags: Mapping[str, object], gpu_memory: float | None) -> str:
    model = str(flags["actor.model_name_or_path"])
    shape = shape_of(model)
    found = estimate(flags, shape, int(gpu_memory * GIB) if gpu_memory is not None else visible_memory())
    return f"{model}: {shape.parameters:,} parameters. GiB (2^30 bytes) on each GPU.\n\n{as_markdown(found)}"


def presets(
    part: Annotated[str, typer.Argument(metavar="PART", help="List only presets whose name contains this.")] = "",
) -> None:
    """List the presets, with the GPUs and hours that each needs. A preset's name can stand for CONFIG in every command.

    Hours are estimates, for an RTX 4090 (presets of 24 GB), an H200 (of 141 GB) or A100s (all others). None was
    measured; docs/operations/one_gpu.md has what they assume.
    """
    names = [name for name in preset_names() if part in name]
    if not names:
        raise ConfigError(f"No preset has {part!r} in its name. `restrain presets` lists all of them.")
    hours = dict(line.split(",") for line in HOURS_FILE.read_text(encoding="utf-8").splitlines())
    width = max(map(len, names))
    for name in names:
        path = find_config(name)
        config = load_run_config(path)
        gpus = GpuLayout.of(flags_of(config)).needed
        # A model that is small enough to share a GPU is small enough for the CPU stack.
        where = "CPU or GPU" if config.share_gpus else f"{gpus} GPU{'s' if gpus > 1 else ''}"
        first = path.read_text(encoding="utf-8").partition("\n")[0]
        about = first.removeprefix("#").strip() if first.startswith("#") else ""
        where += f", {hours[name]} h" if name in hours else ""
        typer.echo(f"{name:<{width}}  {where:<13}  {about}".rstrip())


@with_options(OfflineOptions, "{} without CONFIG", rich_help_panel="Without CONFIG, or to replace what CONFIG says")
def reference(
    options: Typed,
    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="CONFIG", parser=find_config, help="The run's YAML file, or a preset's name (`restrain presets`)."
        ),
    ] = None,
    shard: ShardOption = "0/1",
    overrides: Overrides = None,
) -> None:
    """Sample the frozen model on every prompt: the votes that `restrain premise` reads and training needs.

    With CONFIG, the pass is what the run of CONFIG needs; if most rollouts have no answer, the command ends with an
    error, and the file is kept. Without CONFIG, give --model, --prompts and --out.
    To resume, run the same command.
    """
    part = Shard.named(shard)
    if config is None:
        run_pass(_without_config(options, part, overrides))
    else:
        run = load_run_config(config, parse_overrides(overrides or []))
        run_pass(offline_pass(run, part, **options), run.missing_limit if part == WHOLE else None)


def _without_config(options: Typed, shard: Shard, overrides: Overrides) -> OfflinePass:
    if overrides:
        raise ConfigError("--set: overrides a key of CONFIG, and no CONFIG is named.")
    if missing := [f"--{name}" for name in REQUIRED if name not in options]:
        raise ConfigError(f"Name a CONFIG, or give {', '.join(missing)}.")
    chosen = typed(OfflineOptions, options, "options")
    return OfflinePass.prepare(chosen, chosen.source(), shard)


def run_pass(job: OfflinePass, missing_limit: float | None = None) -> None:
    """Draw one shard in this process, or a whole pass on all visible GPUs, whose parts are merged at the end.

    Raises ReferencePassError if more than `missing_limit` of a whole pass's rollouts have no answer.
    """
    out = job.options.out
    everywhere = ShardedPass([out], job.options.tensor_parallel_size)
    console = Console(stderr=True)
    console.print(job.read, markup=False, highlight=False, soft_wrap=True)
    with sampling_progress(console) as progress:
        task = progress.add_task("offline pass", total=len(job.prompts))
        here = partial(job.sampling().run, lambda: _engine(job))
        shards = everywhere.draw(job.shard, here, partial(progress.advance, task))
        if len(shards) > 1:
            merge([shard.path(out) for shard in shards], out)
    if missing_limit is not None:
        load_reference(job.path).refuse_missing(missing_limit)
    if warning := missing_in(job.path, job.provenance):
        console.print(f"warning: {warning}", markup=False, soft_wrap=True)
    console.print(f"reference: {job.path}", soft_wrap=True)


def _engine(job: OfflinePass) -> Engine:
    if job.options.agent is None:
        return job.engine()
    from restrain_openrlhf.hook.rollout.trajectories import AgentEngine  # noqa: PLC0415 - imports OpenRLHF

    return AgentEngine(job.options.agent, job.options.model, job.options, job.tokenizer)
