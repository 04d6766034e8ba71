"""`restrain k8s render`: the Kubernetes manifests of one configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from restrain_openrlhf.cli.options import ConfigFile, Overrides
from restrain_openrlhf.config.command_line import parse_overrides
from restrain_openrlhf.data.outputs import output_folder
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.shipped import KUBERNETES

if TYPE_CHECKING:
    from restrain_openrlhf.k8s.naming import Manifest
    from restrain_openrlhf.k8s.stages import Stage

STEPS, CLUSTER = "What is run", "The cluster"

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
    job: Annotated[
        str | None,
        typer.Option(help="train or test-time.", show_default="what CONFIG is for", rich_help_panel=STEPS),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="STEP", help="Render only this step. Repeatable.", rich_help_panel=STEPS),
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Pods of the offline pass and of the evaluation.",
            show_default="the GPUs of a node",
            rich_help_panel=STEPS,
        ),
    ] = None,
    reference_n: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Rollouts per prompt in the offline pass.",
            show_default="CONFIG's",
            rich_help_panel=STEPS,
        ),
    ] = None,
    benchmarks: Annotated[
        str | None,
        typer.Option(
            help="Benchmarks of the evaluation, comma-separated.", show_default="the paper's", rich_help_panel=STEPS
        ),
    ] = None,
    gpu_memory: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="GIB",
            help="Memory of a GPU: a CONFIG that cannot fit is refused.",
            show_default="the overlay's",
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    storage_class: Annotated[
        str | None,
        typer.Option(help="Storage class of the volumes.", show_default="the cluster's", rich_help_panel=CLUSTER),
    ] = None,
    access_mode: Annotated[
        str | None,
        typer.Option(help="ReadWriteMany or ReadWriteOnce.", show_default="the overlay's", rich_help_panel=CLUSTER),
    ] = None,
    models_size: Annotated[
        str | None,
        typer.Option(help="Size of the models volume.", show_default="the overlay's", rich_help_panel=CLUSTER),
    ] = None,
    work_size: Annotated[
        str | None,
        typer.Option(help="Size of the work volume.", show_default="the overlay's", rich_help_panel=CLUSTER),
    ] = None,
    deny_egress: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CIDR",
            help="Range that downloads may not reach, beside private ones. Repeatable.",
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    prometheus_release: Annotated[
        str | None,
        typer.Option(
            help="The label `release` that kube-prometheus-stack asks of monitors and rules.", rich_help_panel=CLUSTER
        ),
    ] = None,
    component: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Folder of k8s/components to add, such as runtime-class. Repeatable.",
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    manifests: Annotated[
        Path | None,
        typer.Option(help="Kustomize tree: a copy of k8s/.", show_default="the package's", rich_help_panel=CLUSTER),
    ] = None,
) -> None:
    """Write the manifests of CONFIG. Nodes and GPUs follow from its OpenRLHF flags. Needs kubectl, but no cluster."""
    from restrain_openrlhf.evaluation.benchmarks import PAPER_BENCHMARKS  # noqa: PLC0415 - keeps `--help` quick
    from restrain_openrlhf.k8s.cluster import Cluster, parse_networks  # noqa: PLC0415
    from restrain_openrlhf.k8s.experiment import Job, load_experiment  # noqa: PLC0415
    from restrain_openrlhf.k8s.images import parse_images  # noqa: PLC0415
    from restrain_openrlhf.k8s.overlay import load_overlay  # noqa: PLC0415
    from restrain_openrlhf.k8s.render import Rendering  # noqa: PLC0415
    from restrain_openrlhf.k8s.render import render as manifests_of  # noqa: PLC0415
    from restrain_openrlhf.k8s.stages import Stage  # noqa: PLC0415

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
    rendering = Rendering(
        experiment,
        chosen,
        benchmarks=PAPER_BENCHMARKS if benchmarks is None else _known(benchmarks),
        images=parse_images(image or []),
        only=tuple(_choice(Stage, step, "--only") for step in only or []),
        components=tuple(component or []),
        cluster=Cluster(
            storage_class=storage_class,
            access_mode=access_mode,
            sizes={name: size for name, size in (("models", models_size), ("work", work_size)) if size is not None},
            closed=parse_networks(deny_egress or []),
            prometheus_release=prometheus_release,
        ),
    )
    _write(manifests_of(rendering), out)


def _known(benchmarks: str) -> tuple[str, ...]:
    from restrain_openrlhf.evaluation.benchmarks import BENCHMARKS  # noqa: PLC0415 - see render

    names = tuple(dict.fromkeys(name.strip() for name in benchmarks.split(",")))
    if unknown := [name for name in names if name not in BENCHMARKS]:
        raise ConfigError(f"--benchmarks: {unknown[0]!r} is no known benchmark. Known: {', '.join(BENCHMARKS)}.")
    return names


def _choice(kind: Any, text: str, option: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise ConfigError(f"{option} {text!r}: choose one of {', '.join(kind)}.") from None


def _write(found: Mapping["Stage", list["Manifest"]], out: str) -> None:
    from restrain_openrlhf.k8s.downloads import copy_lines  # noqa: PLC0415 - see render
    from restrain_openrlhf.k8s.files import text_of, write  # noqa: PLC0415

    if out == "-":
        typer.echo("---\n".join(map(text_of, found.values())), nl=False)
        return
    console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    for command in write(found, Path(out)):
        console.print(command)
    for line in (line for objects in found.values() for line in copy_lines(objects)):
        console.print(line)
    console.print(f"In order, waiting for each, and as often as you like: {Path(out) / 'run.sh'}")
