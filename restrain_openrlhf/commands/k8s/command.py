"""`restrain k8s`: manifests of one configuration, and manifests that experiments share."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from restrain_openrlhf.commands.k8s.cluster import Cluster, load_overlay
from restrain_openrlhf.commands.k8s.experiment import load_experiment
from restrain_openrlhf.commands.k8s.render import render as manifests_of
from restrain_openrlhf.commands.k8s.render import render_platform
from restrain_openrlhf.commands.k8s.script import write
from restrain_openrlhf.commands.k8s.stages import Stage
from restrain_openrlhf.commands.options import ConfigFile, Overrides, to_folder, with_options
from restrain_openrlhf.config.command_line import parse_overrides
from restrain_openrlhf.config.shipped import KUBERNETES
from restrain_openrlhf.data.benchmarks import BENCHMARKS, PAPER_BENCHMARKS
from restrain_openrlhf.errors import ConfigError

step_option = partial(typer.Option, rich_help_panel="What is run")
k8s = typer.Typer(name="k8s", help="Write Kubernetes manifests.", no_args_is_help=True)

ClusterFile = Annotated[
    Path | None,
    typer.Option(
        "--cluster",
        metavar="FILE",
        help="What the cluster has, for all experiments. Options under 'The cluster' override it.",
    ),
]
Tree = Annotated[
    Path, typer.Option(help="Kustomize tree: a copy of the repository's k8s/.", show_default="the package's")
]
Out = Annotated[Path, to_folder("New folder for `run.sh` and one file per step.", metavar="DIR")]
on_a_cluster = with_options(Cluster, rich_help_panel="The cluster", show_default=False)


@k8s.command()
@on_a_cluster
def render(
    config: ConfigFile,
    out: Out,
    options: Cluster,
    cluster: ClusterFile = None,
    overrides: Overrides = None,
    image: Annotated[
        list[str] | None, typer.Option(metavar="NAME=REF@sha256:…", help="Image by digest. Repeatable.")
    ] = None,
    only: Annotated[list[Stage] | None, step_option(metavar="STEP", help="Render only this step. Repeatable.")] = None,
    shards: Annotated[
        int | None,
        step_option(
            min=1, help="Pods for the offline pass and for the evaluation.", show_default=("as many as a node has GPUs")
        ),
    ] = None,
    benchmarks: Annotated[
        str | None, step_option(help="Benchmarks to evaluate, comma-separated.", show_default="the paper's")
    ] = None,
    manifests: Tree = KUBERNETES,
) -> None:
    """Write the manifests of CONFIG. Nodes and GPUs follow from its OpenRLHF flags. Needs kubectl, but no cluster."""
    chosen = options.over(cluster)
    overlay = load_overlay(chosen, manifests)
    overridden = parse_overrides(overrides or [])
    experiment = load_experiment(config, overridden, overlay.nodes, shards or overlay.nodes.gpus_per_node)
    names = PAPER_BENCHMARKS if benchmarks is None else _known_benchmarks(benchmarks)
    write(manifests_of(experiment, overlay, chosen, image or (), names, only or ()), out)
    _tell(f"Apply the steps in order and wait for each (can be repeated at any time): {out / 'run.sh'}")


@k8s.command()
@on_a_cluster
def platform(out: Out, options: Cluster, cluster: ClusterFile = None, manifests: Tree = KUBERNETES) -> None:
    """Write what all experiments of a namespace share, without an experiment."""
    chosen = options.over(cluster)
    write(render_platform(load_overlay(chosen, manifests), chosen), out)
    _tell(f"The cluster's administrator applies {out / '01-admin.yaml'}; then {out / 'run.sh'} applies the rest.")


def _tell(text: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True, markup=False).print(text)


def _known_benchmarks(benchmarks: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in benchmarks.split(",")))
    if unknown := [name for name in names if name not in BENCHMARKS]:
        raise ConfigError(f"--benchmarks: {unknown[0]!r} is no known benchmark. Known: {', '.join(BENCHMARKS)}.")
    return names
