"""`restrain k8s render`: the manifests of one configuration, built by Kustomize and checked."""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.console import Console

from restrain_openrlhf.commands.k8s import stages
from restrain_openrlhf.commands.k8s.cluster import Cluster, Overlay, load_overlay
from restrain_openrlhf.commands.k8s.experiment import WORK, Experiment, benchmarks_on_volume, load_experiment
from restrain_openrlhf.commands.k8s.patches import patches
from restrain_openrlhf.commands.k8s.stages import Manifest, Stage, write
from restrain_openrlhf.commands.options import ConfigFile, Overrides, to_folder, with_options
from restrain_openrlhf.config.command_line import parse_overrides
from restrain_openrlhf.config.documents import KUBERNETES, LOADER
from restrain_openrlhf.data.benchmarks import PAPER_BENCHMARKS
from restrain_openrlhf.data.outputs import write_whole
from restrain_openrlhf.errors import ConfigError

UNSET_HOST = "registry.invalid/"
# A registry, its port, the parts of the repository in lower case, a tag that counts for nothing, and the digest.
BY_DIGEST = re.compile(r"(?:[a-zA-Z0-9.-]+(?::\d+)?/)?[a-z0-9._-]+(?:/[a-z0-9._-]+)*(?::[\w.-]+)?@sha256:[0-9a-f]{64}")


def manifests_of(
    experiment: Experiment, overlay: Overlay, cluster: Cluster, images: Sequence[str], only: Sequence[Stage] = ()
) -> Mapping[Stage, list[Manifest]]:
    """The manifests of each step that the experiment needs, in order; with `only`, of those steps and FIRST.

    Raises ConfigError for an image without a digest, a step that the run or the overlay lacks, or where Kustomize is
    missing.
    """
    wanted = stages.chosen(experiment, only)
    found = stages.by_stage(cluster.fitted(_tree(experiment, overlay, cluster, images)), wanted)
    _refuse_unset(each for objects in found.values() for each in objects)
    return {
        stage: objects if stage in stages.SHARED else stages.named(objects, experiment.name)
        for stage, objects in found.items()
    }


def _tree(experiment: Experiment, overlay: Overlay, cluster: Cluster, images: Sequence[str]) -> list[Manifest]:
    """All objects of the overlay, patched for this cluster and this experiment."""
    tree = overlay.path.parents[1]
    with tempfile.TemporaryDirectory(prefix="restrain-k8s-") as made:
        folder = Path(made).resolve()
        document = {
            # Kustomize accepts only relative paths of a base.
            "resources": [os.path.relpath(overlay.path, folder)],
            "configMapGenerator": [
                {"name": f"{experiment.job}-experiment", "behavior": "replace", "files": ["experiment.yaml"]}
            ],
            # A patch whose target the overlay lacks changes nothing.
            "patches": [
                {"target": patch["target"], "patch": yaml.safe_dump(patch["operations"], sort_keys=False)}
                for patch in (*patches(experiment), *cluster.patches())
            ],
            "images": _new_images(images, tree),
        }
        write_whole(folder / "experiment.yaml", experiment.text)
        write_whole(folder / "kustomization.yaml", yaml.safe_dump(document, sort_keys=False))
        return build(folder)


def build(folder: Path) -> list[Manifest]:
    """The objects that Kustomize builds from a folder.

    Raises ConfigError with Kustomize's own message, or if kubectl is missing.
    """
    try:
        done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ConfigError(
            "kubectl, which builds the manifests, is not on PATH. Install kubectl 1.29 or newer."
        ) from None
    if done.returncode != 0:
        raise ConfigError(f"Kustomize refuses {folder}: {done.stderr.strip()}")
    return [each for each in yaml.load_all(done.stdout, LOADER) if each]


def _new_images(words: Iterable[str], tree: Path) -> list[dict[str, str]]:
    """Kustomize's entries for `--image NAME=REGISTRY/NAME@sha256:...`, by the names that the tree has given the images.

    Raises ConfigError for another form, and for a name that no manifest has.
    """
    configured = yaml.safe_load((tree / "components" / "images" / "kustomization.yaml").read_text(encoding="utf-8"))
    names = {entry["name"]: entry.get("newName", entry["name"]) for entry in configured["images"]}
    new = dict[str, dict[str, str]]()
    for word in words:
        name, _, reference = word.partition("=")
        if not BY_DIGEST.fullmatch(reference):
            raise ConfigError(
                f"--image {word!r}: give NAME=REGISTRY/REPOSITORY@sha256:<64 hex digits>, in lower case and without "
                "https://; a tag alone is not enough."
            )
        if name not in names:
            raise ConfigError(f"--image {name}=...: no manifest has it. The images are {', '.join(names)}.")
        repository, _, digest = reference.partition("@")
        new[name] = {"name": names[name], "newName": repository, "digest": digest}
    return list(new.values())


def _refuse_unset(manifests: Iterable[Manifest]) -> None:
    """Raises ConfigError that names the first image without a digest, or with the placeholder's registry."""
    used = {node["image"] for each in manifests for node in stages.mappings(each) if isinstance(node.get("image"), str)}
    for image in sorted(used):
        if image.startswith(UNSET_HOST) or not BY_DIGEST.fullmatch(image):
            name = image.removeprefix(UNSET_HOST).partition("@")[0]
            raise ConfigError(
                f"The image {name} has no digest. Build and push it (docs/operations/kubernetes.md), then render with "
                f"--image {name}=REGISTRY/{name}@sha256:... or set it in k8s/components/images."
            )


step_option = partial(typer.Option, rich_help_panel="What is run")
k8s = typer.Typer(name="k8s", help="Write Kubernetes manifests.", no_args_is_help=True)


@k8s.command()
@with_options(Cluster, rich_help_panel="The cluster", show_default=False)
def render(
    config: ConfigFile,
    out: Annotated[Path, to_folder("New folder for `run.sh` and one file per step.", metavar="DIR")],
    options: Cluster,
    cluster: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What the cluster has, for all experiments. Options under 'The cluster' override it.",
        ),
    ] = None,
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
        str | None,
        step_option(
            help="Comma-separated: names, or NAME=PATH with a file on the work volume; or none.",
            show_default="the paper's",
        ),
    ] = None,
    manifests: Annotated[
        Path, typer.Option(help="Kustomize tree: a copy of the repository's k8s/.", show_default="the package's")
    ] = KUBERNETES,
) -> None:
    """Write the manifests of CONFIG. Nodes and GPUs follow from its OpenRLHF flags. Needs kubectl, but no cluster."""
    chosen = options.over(cluster)
    overlay = load_overlay(chosen, manifests)
    overridden = parse_overrides(overrides or [])
    words = PAPER_BENCHMARKS if benchmarks is None else benchmarks_on_volume(benchmarks)
    parts = shards or overlay.nodes.gpus_per_node
    experiment = load_experiment(config, overridden, overlay.nodes, parts, words)
    made = manifests_of(experiment, overlay, chosen, image or (), only or ())
    write(made, out)
    console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    for line in _how_to_copy(experiment, made.get(Stage.FILES, ()), out):
        console.print(line)
    console.print(f"Apply the steps in order and wait for each (can be repeated at any time): {out / 'run.sh'}")


def _how_to_copy(experiment: Experiment, files: Iterable[Manifest], out: Path) -> list[str]:
    """What is printed of the files that no step makes: how to copy each through the pod of the step `files`."""
    lines = [
        f"  kubectl -n {pod['namespace']} cp {path.relative_to(WORK) if WORK in path.parents else path.name} "
        f"{pod['name']}:{path}"
        for pod in (each["metadata"] for each in files)
        for path in experiment.copied
    ]
    first = f"No step makes these files. Copy those that are not on the volumes yet: {out / 'run.sh'} --files, then"
    return [first, *lines] if lines else []
