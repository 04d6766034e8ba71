"""`restrain k8s render`: the manifests of one configuration, built by Kustomize and checked."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console

from restrain_openrlhf.commands.k8s import stages
from restrain_openrlhf.commands.k8s.cluster import Cluster, Overlay, load_overlay
from restrain_openrlhf.commands.k8s.experiment import (
    WORK,
    Experiment,
    benchmarks_on_volume,
    load_experiment,
    patches,
)
from restrain_openrlhf.commands.k8s.stages import Manifest, Stage, write
from restrain_openrlhf.commands.options import ConfigFile, Overrides, to_folder, with_options
from restrain_openrlhf.config.command_line import parse_overrides
from restrain_openrlhf.config.documents import KUBERNETES, LOADER
from restrain_openrlhf.data.benchmarks import PAPER_BENCHMARKS
from restrain_openrlhf.data.outputs import write_whole
from restrain_openrlhf.errors import ConfigError

OLDEST_KUSTOMIZE = 5
UNSET_HOST = "registry.invalid/"
# A registry, its port, the parts of the repository in lower case, a tag that counts for nothing, and the digest.
BY_DIGEST = re.compile(r"(?:[a-zA-Z0-9.-]+(?::\d+)?/)?[a-z0-9._-]+(?:/[a-z0-9._-]+)*(?::[\w.-]+)?@sha256:[0-9a-f]{64}")
# The tree marks objects whose image is unset. No image is unset after rendering, so the mark goes.
UNMARK = {
    "target": {"annotationSelector": "restrain-openrlhf/image-registry=registry.invalid"},
    "operations": [{"op": "remove", "path": "/metadata/annotations/restrain-openrlhf~1image-registry"}],
}


def manifests_of(
    experiment: Experiment,
    overlay: Overlay,
    cluster: Cluster,
    images: Sequence[str],
    only: Sequence[Stage] = (),
) -> Mapping[Stage, list[Manifest]]:
    """The manifests of each step that the experiment needs, in order; with `only`, of those steps and FIRST.

    Raises ConfigError for an image without a digest, a step that the run or the overlay lacks, or where Kustomize is
    missing.
    """
    wanted = stages.chosen(experiment, only)
    tree = _tree(experiment, overlay, cluster, images)
    found = stages.by_stage(cluster.fitted(tree), wanted)
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
            "configMapGenerator": _own_configuration(experiment, overlay),
            # A patch whose target the overlay lacks changes nothing.
            "patches": [
                {"target": patch["target"], "patch": yaml.safe_dump(patch["operations"], sort_keys=False)}
                for patch in (*patches(experiment), *cluster.patches(), UNMARK)
            ],
            "images": _new_images(images, tree),
        }
        write_whole(folder / "experiment.yaml", experiment.text)
        write_whole(folder / "kustomization.yaml", yaml.safe_dump(document, sort_keys=False))
        return build(folder)


def _own_configuration(experiment: Experiment, overlay: Overlay) -> list[dict[str, Any]]:
    """The experiment's ConfigMap, which replaces the overlay's.

    Kustomize refuses to replace one that does not exist.
    """
    if experiment.job not in map(stages.stage_of, build(overlay.path)):
        return []
    return [{"name": f"{experiment.job}-experiment", "behavior": "replace", "files": ["experiment.yaml"]}]


def build(folder: Path) -> list[Manifest]:
    """The objects that Kustomize builds from a folder.

    Raises ConfigError with Kustomize's own message, or if kubectl is missing or too old.
    """
    refuse_old_kubectl()
    done = _run(["kubectl", "kustomize", str(folder)])
    if done.returncode != 0:
        raise ConfigError(f"Kustomize refuses {folder}: {done.stderr.strip()}")
    return [each for each in yaml.load_all(done.stdout, LOADER) if each]


def refuse_old_kubectl() -> None:
    """Raises ConfigError if kubectl is missing, or its built-in Kustomize is too old."""
    said = _run(["kubectl", "version", "--client"]).stdout if shutil.which("kubectl") else ""
    version = re.search(r"Kustomize Version: v(\d+)", said)
    if version is None or int(version[1]) < OLDEST_KUSTOMIZE:
        what = f"brings Kustomize {version[1]}" if version else "is not on PATH"
        raise ConfigError(f"kubectl {what}; Kustomize {OLDEST_KUSTOMIZE} is needed. Install kubectl 1.29 or newer.")


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def _new_images(words: Iterable[str], tree: Path) -> list[dict[str, str]]:
    """Kustomize's entries for `--image NAME=REGISTRY/NAME@sha256:...`, by the names that the tree has given the images.

    Raises ConfigError for another form, for a name that no manifest has, and for one that is given twice.
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
        if name in new:
            raise ConfigError(f"--image {name} is given twice. Give it once.")
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
    if Stage.FILES in made:
        for line in _how_to_copy(experiment, made[Stage.FILES], out):
            console.print(line)
    console.print(f"Apply the steps in order and wait for each (can be repeated at any time): {out / 'run.sh'}")


def _how_to_copy(experiment: Experiment, files: Sequence[Manifest], out: Path) -> list[str]:
    """The commands that copy what no step makes, through the pod of the step `files`; none if there is nothing."""
    (pod,) = (each["metadata"] for each in files if each["kind"] == "Pod")
    kubectl, name = f"  kubectl -n {pod['namespace']}", pod["name"]
    if not (copied := experiment.copied):
        return []
    folders = " ".join(sorted({str(path.parent) for path in copied}))
    return [
        "No step makes these files. Copy those that are not on the volumes yet; a path on the left is your own:",
        f"  {out / 'run.sh'} --files",
        f"{kubectl} wait --for=condition=Ready --timeout=10m pod/{name}",
        f"{kubectl} exec {name} -- mkdir -p {folders}",
        *(f"{kubectl} cp {_local(path)} {name}:{path}" for path in copied),
        f"{kubectl} delete pod {name}",
    ]


def _local(path: PurePosixPath) -> PurePosixPath:
    """The path in the working folder that is `path` on the work volume; the name alone on another volume."""
    return path.relative_to(WORK) if path.is_relative_to(WORK) else PurePosixPath(path.name)
