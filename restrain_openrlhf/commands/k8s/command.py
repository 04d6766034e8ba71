"""`restrain k8s render`: the Kubernetes manifests of one configuration."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from restrain_openrlhf.commands.options import ConfigFile, Overrides
from restrain_openrlhf.config.command_line import parse_overrides
from restrain_openrlhf.config.shipped import KUBERNETES
from restrain_openrlhf.data.outputs import output_folder
from restrain_openrlhf.errors import ConfigError

step_option = partial(typer.Option, rich_help_panel="What is run")
cluster_option = partial(typer.Option, rich_help_panel="The cluster")
of_the_overlay = partial(cluster_option, show_default="the overlay's")
k8s = typer.Typer(help="Write Kubernetes manifests.", no_args_is_help=True)


@k8s.callback()
def _commands() -> None:
    """With one command and no callback, typer would drop the word `render`."""


@k8s.command()
def render(
    config: ConfigFile,
    overlay: Annotated[str, typer.Option(help="Folder of k8s/overlays: single-node, 8xa100-80g, …")],
    out: Annotated[str, typer.Option(metavar="DIR|-", help="New folder for one file per step, or - for the terminal.")],
    overrides: Overrides = None,
    image: Annotated[
        list[str] | None, typer.Option(metavar="NAME=REF@sha256:…", help="Image by digest. Repeatable.")
    ] = None,
    job: Annotated[str | None, step_option(help="train or test-time.", show_default="what CONFIG is for")] = None,
    only: Annotated[list[str] | None, step_option(metavar="STEP", help="Render only this step. Repeatable.")] = None,
    shards: Annotated[
        int | None,
        step_option(min=1, help="Pods of the offline pass and of the evaluation.", show_default="the GPUs of a node"),
    ] = None,
    reference_n: Annotated[
        int | None, step_option(min=1, help="Rollouts per prompt in the offline pass.", show_default="CONFIG's")
    ] = None,
    benchmarks: Annotated[
        str | None, step_option(help="Benchmarks of the evaluation, comma-separated.", show_default="the paper's")
    ] = None,
    gpu_memory: Annotated[
        int | None, of_the_overlay(min=1, metavar="GIB", help="Memory of a GPU: a CONFIG that cannot fit is refused.")
    ] = None,
    storage_class: Annotated[
        str | None, cluster_option(help="Storage class of the volumes.", show_default="the cluster's")
    ] = None,
    access_mode: Annotated[str | None, of_the_overlay(help="ReadWriteMany or ReadWriteOnce.")] = None,
    models_size: Annotated[str | None, of_the_overlay(help="Size of the models volume.")] = None,
    work_size: Annotated[str | None, of_the_overlay(help="Size of the work volume.")] = None,
    deny_egress: Annotated[
        list[str] | None,
        cluster_option(metavar="CIDR", help="Range that downloads may not reach, beside private ones. Repeatable."),
    ] = None,
    prometheus_release: Annotated[
        str | None, cluster_option(help="The label `release` that kube-prometheus-stack asks of monitors and rules.")
    ] = None,
    component: Annotated[
        list[str] | None,
        cluster_option(metavar="NAME", help="Folder of k8s/components to add, such as runtime-class. Repeatable."),
    ] = None,
    manifests: Annotated[
        Path | None, cluster_option(help="Kustomize tree: a copy of k8s/.", show_default="the package's")
    ] = None,
) -> None:
    """Write the manifests of CONFIG. Nodes and GPUs follow from its OpenRLHF flags. Needs kubectl, but no cluster."""
    from restrain_openrlhf.commands.k8s.experiment import Job, load_experiment  # noqa: PLC0415
    from restrain_openrlhf.commands.k8s.files import copy_lines, text_of, write  # noqa: PLC0415
    from restrain_openrlhf.commands.k8s.overlay import Cluster, load_overlay, parse_networks  # noqa: PLC0415
    from restrain_openrlhf.commands.k8s.render import parse_images  # noqa: PLC0415
    from restrain_openrlhf.commands.k8s.render import render as manifests_of  # noqa: PLC0415
    from restrain_openrlhf.commands.k8s.stages import Stage  # noqa: PLC0415
    from restrain_openrlhf.data.benchmarks import PAPER_BENCHMARKS  # noqa: PLC0415 - keeps `--help` quick

    if out != "-":
        output_folder(Path(out))
    chosen = load_overlay(overlay, manifests or KUBERNETES)
    nodes = chosen.nodes.model_copy(update={"gpu_memory": gpu_memory or chosen.nodes.gpu_memory})
    experiment = load_experiment(
        config,
        dict(parse_overrides(overrides or [])),
        nodes,
        job=None if job is None else _choice(Job, job, "--job"),
        shards=shards or nodes.gpus_per_node,
        rollouts=reference_n,
    )
    names = PAPER_BENCHMARKS if benchmarks is None else _known(benchmarks)
    cluster = Cluster(
        storage_class=storage_class,
        access_mode=access_mode,
        sizes={name: size for name, size in (("models", models_size), ("work", work_size)) if size is not None},
        closed=parse_networks(deny_egress or []),
        prometheus_release=prometheus_release,
        images=parse_images(image or []),
        components=tuple(component or []),
    )
    steps = [_choice(Stage, step, "--only") for step in only or []]
    found = manifests_of(experiment, chosen, cluster, names, steps)
    if out == "-":
        typer.echo("---\n".join(map(text_of, found.values())), nl=False)
        return
    console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    for line in (*write(found, Path(out)), *(line for objects in found.values() for line in copy_lines(objects))):
        console.print(line)
    console.print(f"In order, waiting for each, and as often as you like: {Path(out) / 'run.sh'}")


def _known(benchmarks: str) -> tuple[str, ...]:
    from restrain_openrlhf.data.benchmarks import BENCHMARKS  # noqa: PLC0415 - see render

    names = tuple(dict.fromkeys(name.strip() for name in benchmarks.split(",")))
    if unknown := [name for name in names if name not in BENCHMARKS]:
        raise ConfigError(f"--benchmarks: {unknown[0]!r} is no known benchmark. Known: {', '.join(BENCHMARKS)}.")
    return names


def _choice(kind: Any, text: str, option: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise ConfigError(f"{option} {text!r}: choose one of {', '.join(kind)}.") from None
