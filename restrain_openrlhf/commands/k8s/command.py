"""`restrain k8s render`: the Kubernetes manifests of one configuration."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from restrain_openrlhf.commands.k8s.experiment import load_experiment
from restrain_openrlhf.commands.k8s.overlay import Cluster, cluster_option, load_overlay
from restrain_openrlhf.commands.k8s.render import render as manifests_of
from restrain_openrlhf.commands.k8s.stages import Stage, write
from restrain_openrlhf.commands.options import ConfigFile, Overrides, to_folder, with_options
from restrain_openrlhf.config.command_line import parse_overrides
from restrain_openrlhf.config.shipped import KUBERNETES
from restrain_openrlhf.data.benchmarks import BENCHMARKS, PAPER_BENCHMARKS
from restrain_openrlhf.errors import ConfigError

step_option = partial(typer.Option, rich_help_panel="What is run")
k8s = typer.Typer(help="Write Kubernetes manifests.", no_args_is_help=True)


@k8s.command()
@with_options(Cluster)
def render(
    config: ConfigFile,
    overlay: Annotated[str, typer.Option(help="Folder of k8s/overlays: single-node, 8xa100-80g, …")],
    out: Annotated[Path, to_folder("New folder for one file per step, and `run.sh`.", metavar="DIR")],
    cluster: Cluster,
    overrides: Overrides = None,
    only: Annotated[list[Stage] | None, step_option(metavar="STEP", help="Render only this step. Repeatable.")] = None,
    shards: Annotated[
        int | None,
        step_option(min=1, help="Pods of the offline pass and of the evaluation.", show_default="the GPUs of a node"),
    ] = None,
    benchmarks: Annotated[
        str | None, step_option(help="Benchmarks of the evaluation, comma-separated.", show_default="the paper's")
    ] = None,
    manifests: Annotated[
        Path, cluster_option(help="Kustomize tree: a copy of k8s/.", show_default="the package's")
    ] = KUBERNETES,
) -> None:
    """Write the manifests of CONFIG. Nodes and GPUs follow from its OpenRLHF flags. Needs kubectl, but no cluster."""
    chosen = load_overlay(overlay, manifests)
    nodes = chosen.nodes.model_copy(update={"gpu_memory": cluster.gpu_memory or chosen.nodes.gpu_memory})
    overridden = parse_overrides(overrides or [])
    experiment = load_experiment(config, overridden, nodes, shards or nodes.gpus_per_node)
    names = PAPER_BENCHMARKS if benchmarks is None else _known(benchmarks)
    found = manifests_of(experiment, chosen, cluster, names, only or ())
    write(found, out)
    console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    console.print(f"In order, waiting for each, and as often as you like: {out / 'run.sh'}")


def _known(benchmarks: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in benchmarks.split(",")))
    if unknown := [name for name in names if name not in BENCHMARKS]:
        raise ConfigError(f"--benchmarks: {unknown[0]!r} is no known benchmark. Known: {', '.join(BENCHMARKS)}.")
    return names
