"""`restrain reference`, `make-`, `merge-` and `subset-reference`: the offline pass of the frozen model."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from restrain_openrlhf.commands.options import ConfigFile, Overrides, ShardOption, parse_shard, to_file, with_options
from restrain_openrlhf.config.command_line import parse_overrides
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.all_gpus import ShardedPass
from restrain_openrlhf.reference.artifact import merge, missing_in, subset
from restrain_openrlhf.reference.offline_pass import OfflineOptions, OfflinePass, offline_pass
from restrain_openrlhf.reference.sampling_pass import Engine, Shard


@with_options(OfflineOptions)
def reference(options: OfflineOptions) -> None:
    """Sample the frozen model on every prompt, for u_x and SRT's labels. To resume, run the same command."""
    _run(OfflinePass.prepare(options, options.source(), Shard(*parse_shard(options.shard))))


def make_reference(
    config: ConfigFile,
    n: Annotated[int | None, typer.Option(min=1, help="Rollouts per prompt.", show_default="CONFIG's")] = None,
    shard: ShardOption = "0/1",
    overrides: Overrides = None,
) -> None:
    """Sample the reference file that CONFIG names, with its model, prompts, template and sampling."""
    resolved = load_run_config(config, parse_overrides(overrides or []))
    _run(offline_pass(resolved, n, Shard(*parse_shard(shard))))


def _run(job: OfflinePass) -> None:
    """This shard in this process; a whole pass on all visible GPUs, merged at the end."""
    out = job.options.out
    everywhere = ShardedPass([out], job.options.tensor_parallel_size)
    shards = everywhere.shards() if job.shard.count == 1 else [job.shard]
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("offline pass", total=len(job.prompts))
        if len(shards) > 1:
            everywhere.run(shards, lambda rows: progress.advance(task, rows))
            merge([shard.path(out) for shard in shards], out)
        else:
            job.run(lambda done: progress.advance(task, done), lambda: _engine(job))
    if warning := missing_in(job.path, job.provenance.kind):
        console.print(f"warning: {warning}", markup=False, soft_wrap=True)
    console.print(f"reference: {job.path}", soft_wrap=True)


def _engine(job: OfflinePass) -> Engine:
    if job.agent is None:
        return job.engine()
    from restrain_openrlhf.hook.rollout.agent_engine import AgentEngine  # noqa: PLC0415 - imports OpenRLHF

    return AgentEngine(job.agent, job.options.model, job.options, job.tokenizer)


def merge_reference(
    shards: Annotated[list[Path], typer.Argument(metavar="SHARD...", help="All shards of the pass.")],
    out: Annotated[Path, to_file("The merged reference file.")],
) -> None:
    """Merge the shards of an offline pass. They must be complete and of the same pass."""
    count = merge(shards, out)
    Console(stderr=True).print(f"reference: {out}, {count} prompts", soft_wrap=True)


def subset_reference(
    artifact: Annotated[Path, typer.Argument(metavar="REFERENCE", help="A complete reference file.")],
    out: Annotated[Path, to_file("The smaller reference file.")],
    n: Annotated[int, typer.Option(min=1, help="Keep the first N rollouts of each prompt.")],
) -> None:
    """Make a reference file for fewer rollouts, without sampling again."""
    count = subset(load_reference(artifact), out, n)
    Console(stderr=True).print(f"reference: {out}, {count} prompts", soft_wrap=True)
