"""`restrain reference`: the offline pass of the frozen model."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from restrain_openrlhf.commands.options import (
    Overrides,
    ShardOption,
    Typed,
    parse_shard,
    sampling_progress,
    with_options,
)
from restrain_openrlhf.config.command_line import find_config, parse_overrides
from restrain_openrlhf.config.documents import typed
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.reference.all_gpus import ShardedPass
from restrain_openrlhf.reference.artifact import load_reference, merge, missing_in
from restrain_openrlhf.reference.offline_pass import OfflineOptions, OfflinePass, offline_pass
from restrain_openrlhf.reference.sampling_pass import WHOLE, Engine, Shard

# Options that are required without CONFIG.
REQUIRED = ("model", "prompts", "out")


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
    part = Shard(*parse_shard(shard))
    if config is None:
        _run(_without_config(options, part, overrides))
    else:
        run = load_run_config(config, parse_overrides(overrides or []))
        _run(offline_pass(run, part, **options), run.missing_limit if part == WHOLE else None)


def _without_config(options: Typed, shard: Shard, overrides: Overrides) -> OfflinePass:
    if overrides:
        raise ConfigError("--set: overrides a key of CONFIG, and no CONFIG is named.")
    if missing := [f"--{name}" for name in REQUIRED if name not in options]:
        raise ConfigError(f"Name a CONFIG, or give {', '.join(missing)}.")
    chosen = typed(OfflineOptions, options, "options")
    return OfflinePass.prepare(chosen, chosen.source(), shard)


def _run(job: OfflinePass, missing_limit: float | None = None) -> None:
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
