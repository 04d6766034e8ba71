"""`restrain k8s`: manifests of one configuration, manifests that experiments share, and the cluster file."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from restrain_openrlhf.commands.k8s.cluster import Cluster, load_overlay
from restrain_openrlhf.commands.k8s.experiment import load_experiment
from restrain_openrlhf.commands.k8s.render import render as manifests_of
from restrain_openrlhf.commands.k8s.render import render_platform
from restrain_openrlhf.commands.k8s.script import write, write_waves
from restrain_openrlhf.commands.k8s.stages import FIRST, Stage
from restrain_openrlhf.commands.k8s.survey import survey
from restrain_openrlhf.commands.options import ConfigFile, Overrides, to_file, to_folder, with_options
from restrain_openrlhf.config.command_line import parse_overrides
from restrain_openrlhf.config.documents import dump_yaml
from restrain_openrlhf.config.shipped import KUBERNETES
from restrain_openrlhf.data.benchmarks import BENCHMARKS, PAPER_BENCHMARKS
from restrain_openrlhf.data.outputs import write_whole
from restrain_openrlhf.errors import ConfigError

step_option = partial(typer.Option, rich_help_panel="What is run")
k8s = typer.Typer(name="k8s", help="Write Kubernetes manifests.", no_args_is_help=True)
cluster_file = typer.Typer(help="The cluster file, which holds what differs between clusters.", no_args_is_help=True)
k8s.add_typer(cluster_file, name="cluster")

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
ArgoCd = Annotated[
    bool,
    typer.Option("--argo-cd", help="Mark each step as a wave of Argo CD, which then applies them instead of run.sh."),
]
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
    argo_cd: ArgoCd = False,
) -> None:
    """Write the manifests of CONFIG. Nodes and GPUs follow from its OpenRLHF flags. Needs kubectl, but no cluster.

    With --argo-cd, what experiments share is left out: `restrain k8s platform --argo-cd` writes it, once per namespace.
    """
    chosen = options.over(cluster)
    overlay = load_overlay(chosen, manifests)
    overridden = parse_overrides(overrides or [])
    experiment = load_experiment(config, overridden, overlay.nodes, shards or overlay.nodes.gpus_per_node)
    names = PAPER_BENCHMARKS if benchmarks is None else _known_benchmarks(benchmarks)
    steps = manifests_of(experiment, overlay, chosen, image or (), names, only or ())
    if argo_cd:
        write_waves({stage: objects for stage, objects in steps.items() if stage not in FIRST}, out)
        _tell(f"Commit {out}, and create an Argo CD Application for it beside the platform's.")
        return
    write(steps, out)
    _tell(f"Apply the steps in order and wait for each (can be repeated at any time): {out / 'run.sh'}")


@k8s.command()
@on_a_cluster
def platform(
    out: Out, options: Cluster, cluster: ClusterFile = None, manifests: Tree = KUBERNETES, argo_cd: ArgoCd = False
) -> None:
    """Write what all experiments of a namespace share, without an experiment."""
    chosen = options.over(cluster)
    steps = render_platform(load_overlay(chosen, manifests), chosen)
    if argo_cd:
        write_waves(steps, out)
        _tell(f"Commit {out}, and create an Argo CD Application for it that may write cluster-wide objects.")
        return
    write(steps, out)
    _tell(f"The cluster's administrator applies {out / '01-admin.yaml'}; then {out / 'run.sh'} applies the rest.")


@cluster_file.command()
@on_a_cluster
def init(
    options: Cluster, out: Annotated[Path, to_file("File to write.", metavar="FILE")] = Path("cluster.yaml")
) -> None:
    """Inspect the cluster of kubectl's context and write its cluster file. Options are written unchanged."""
    if out.exists():
        raise ConfigError(f"--out {out}: exists already. Edit it, or name another file.")
    found = survey()
    document = {**found.settings, **options.model_dump(mode="json", exclude_defaults=True)}
    text = dump_yaml(Cluster(**document).model_dump(mode="json", exclude_defaults=True), sort_keys=False)
    write_whole(out, "".join(f"# {line}\n" for line in found.remarks) + text)
    for line in found.remarks:
        _tell(line)
    _tell(f"Wrote {out}. Check it, then give it to `restrain k8s render` and `restrain k8s platform` as --cluster.")


@cluster_file.command()
def schema() -> None:
    """Print the JSON schema of the cluster file."""
    typer.echo(json.dumps(Cluster.model_json_schema(), indent=2))


def _tell(text: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True, markup=False).print(text)


def _known_benchmarks(benchmarks: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in benchmarks.split(",")))
    if unknown := [name for name in names if name not in BENCHMARKS]:
        raise ConfigError(f"--benchmarks: {unknown[0]!r} is no known benchmark. Known: {', '.join(BENCHMARKS)}.")
    return names
