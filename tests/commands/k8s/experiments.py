"""`restrain k8s render` in this process, and every preset on every overlay without a Kustomize run for each."""

import contextlib
import copy
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from restrain_openrlhf.commands.k8s.cluster import Cluster, load_overlay
from restrain_openrlhf.commands.k8s.command import LOADER
from restrain_openrlhf.commands.k8s.experiment import Experiment, load_experiment
from restrain_openrlhf.commands.k8s.patches import Patch, patches
from restrain_openrlhf.commands.k8s.stages import SHARED, named, stage_of, stages_of
from restrain_openrlhf.config.documents import KUBERNETES
from tests.command_line import Done, restrain
from tests.commands.k8s.manifests import Object, needs_kustomize, overlay
from tests.conftest import ROOT

# Those that can be run: a file with an underscore is what others extend. The overlays' GPUs have 80 GB.
LARGER = "configs/one_gpu/141gb/qwen3-4b-base.yaml"
PRESETS = sorted({str(path.relative_to(ROOT)) for path in (ROOT / "configs").rglob("[!_]*.yaml")} - {LARGER})
ONE_GPU_PRESETS = [preset for preset in PRESETS if preset.startswith("configs/one_gpu/")]
PRESET = "configs/dapo14k/qwen3-4b-base/restrain.yaml"
IMAGE = "restrain-train=registry.example/restrain-train@sha256:" + "1" * 64
# What makes any other preset fit the overlay of one GPU.
ONE_GPU = {
    "openrlhf.actor.num_gpus_per_node": 1,
    "openrlhf.ref.num_gpus_per_node": 1,
    "openrlhf.vllm.num_engines": 1,
    "openrlhf.train.colocate_all": True,
    # The states of 4B and 8B models are more than one GPU holds.
    "openrlhf.ds.adam_offload": True,
    # With Adam in host memory, ZeRO 2 is refused.
    "openrlhf.ds.zero_stage": 1,
}


def render(*words: object, out: object, config: str = PRESET, overlay: str = "8xa100-80g") -> Done:
    return restrain("k8s", "render", config, "--overlay", overlay, "--out", out, *words)


@cache
def rendered(*words: object, config: str = PRESET, overlay: str = "8xa100-80g") -> list[Object]:
    """The objects of a rendering, made once; skips where Kustomize is missing."""
    needs_kustomize()
    with tempfile.TemporaryDirectory() as out:
        done = render("--image", IMAGE, *words, config=config, overlay=overlay, out=out)
        assert done.returncode == 0, done.stderr
        texts = [path.read_text() for path in sorted(Path(out).glob("*.yaml"))]
    objects = [each for text in texts for each in yaml.load_all(text, LOADER)]
    # A step that reads training's configuration brings it; the server holds it once.
    return list({(each["kind"], each["metadata"]["name"]): each for each in objects}.values())


@cache
def experiment(preset: str, overlay: str) -> Experiment:
    """A preset as it is rendered for an overlay; one of more GPUs is made smaller for the overlay of one GPU."""
    nodes = load_overlay(Cluster(overlay=overlay), KUBERNETES).nodes
    smaller = nodes.gpus_per_node == 1 and preset not in ONE_GPU_PRESETS
    with contextlib.chdir(ROOT):
        return load_experiment(Path(preset), dict(ONE_GPU) if smaller else {}, nodes)


def steps(preset: str, name: str) -> list[Object]:
    """What a preset's rendering has: the overlay that Kustomize built once, with our patches on a copy of it.

    A test holds this equal to the real rendering.
    """
    made = experiment(preset, name)
    objects = copy.deepcopy([each for each in overlay(name) if stage_of(each) in stages_of(made)])
    for patch in patches(made):
        for each in _targets(objects, patch):
            for operation in patch["operations"]:
                replace(each, operation["path"], operation["value"])
    for each in objects:
        if each["kind"] == "ConfigMap" and each["metadata"]["name"].startswith(f"{made.job}-experiment"):
            each["data"]["experiment.yaml"] = made.text
    own = [each for each in objects if stage_of(each) not in SHARED]
    return [*(each for each in objects if stage_of(each) in SHARED), *named(own, made.name)]


def _targets(objects: list[Object], patch: Patch) -> Iterator[Object]:
    target = patch["target"]
    return (each for each in objects if (each["kind"], each["metadata"]["name"]) == (target["kind"], target["name"]))


def replace(node: Any, pointer: str, value: object) -> None:
    """A JSON pointer's place takes `value`."""
    *path, last = [part.replace("~1", "/") for part in pointer.split("/")[1:]]
    for part in path:
        node = node[int(part) if isinstance(node, list) else part]
    node[int(last) if isinstance(node, list) else last] = value
