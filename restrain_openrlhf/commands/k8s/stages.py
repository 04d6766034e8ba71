"""The steps of an experiment on a cluster: their objects and names, a file for each, and `run.sh` to apply them."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from restrain_openrlhf.commands.k8s.experiment import Experiment, data_words
from restrain_openrlhf.commands.k8s.patches import CHECK, PASS, QUEUE
from restrain_openrlhf.data.outputs import write_whole
from restrain_openrlhf.errors import ConfigError

Manifest = dict[str, Any]
COMPONENT = "app.kubernetes.io/component"
# A label of every pod of an experiment, also in the selectors of its network policies. The tree's value is a
# placeholder.
EXPERIMENT = "restrain-experiment"


class Stage(StrEnum):
    """The steps; each is the component label of its objects, except `admin`, whose objects are known by kind."""

    ADMIN = "admin"
    PLATFORM = "platform"
    CLAIMS = "claims"
    PREFETCH = "prefetch"
    DATA = "data"
    BENCHMARKS = "benchmarks"
    FILES = "files"
    GPU_CHECK = CHECK
    REFERENCE = "reference"
    MERGE_REFERENCE = "merge-reference"
    SUBSET_REFERENCE = "subset-reference"
    PREMISE = "premise"
    TRAIN = "train"
    TEST_TIME = "test-time"
    EVALUATION = "evaluation"
    REGRADE = "regrade"
    REWARD = "reward"


OFFLINE_PASS = (Stage.REFERENCE, Stage.MERGE_REFERENCE, Stage.SUBSET_REFERENCE)
# Steps whose objects all experiments of a namespace share. The objects of other steps belong to one experiment.
SHARED = frozenset({Stage.ADMIN, Stage.PLATFORM, Stage.CLAIMS, Stage.REWARD})
# Steps that every other step needs, so each rendering has them. run.sh leaves what exists already alone.
FIRST = (Stage.ADMIN, Stage.PLATFORM, Stage.CLAIMS)
# Steps that read training's configuration before training is applied.
READERS = (Stage.GPU_CHECK, Stage.PREMISE)
# Kinds whose completion run.sh waits for.
JOBS = ("Job", "RayJob")


def stages_of(experiment: Experiment) -> tuple[Stage, ...]:
    """The steps that this experiment needs.

    The model is not downloaded if it is on a volume, nor prompts that are the user's own. An offline pass has steps
    only if it is to be drawn. Benchmarks that have no file of the user's are fetched.
    """
    from_hub = () if experiment.model.startswith("/") else (Stage.PREFETCH,)
    known = (Stage.DATA,) if data_words(experiment.prompts, experiment.job) else ()
    first = (*FIRST, Stage.FILES, *from_hub, *known)
    if experiment.job == "test-time":
        return (*first, Stage.TEST_TIME)
    offline = OFFLINE_PASS[: 0 if experiment.offline is None else 2 + experiment.offline.is_cut]
    checked = (Stage.PREMISE,) if "reference" in experiment.document else ()
    fetched = (Stage.BENCHMARKS,) if experiment.fetched else ()
    graded = (Stage.EVALUATION, Stage.REGRADE) if experiment.benchmarks else ()
    return (*first, *fetched, Stage.GPU_CHECK, *offline, *checked, Stage.TRAIN, *graded)


def chosen(experiment: Experiment, only: Sequence[Stage]) -> tuple[Stage, ...]:
    """The experiment's steps, or those of `only` and FIRST. Raises ConfigError for a step that it does not have."""
    own = stages_of(experiment)
    if missing := [stage for stage in only if stage not in (*own, Stage.REWARD)]:
        raise ConfigError(f"--only {missing[0]}: this run has no such step. It has {', '.join(own)}, and reward.")
    return tuple(dict.fromkeys((*FIRST, *only))) if only else own


def by_stage(manifests: Iterable[Manifest], stages: Iterable[Stage]) -> Mapping[Stage, list[Manifest]]:
    """The manifests of each of `stages`. Raises ConfigError for a step that the overlay does not have."""
    objects = list(manifests)
    found = {stage: [each for each in objects if stage_of(each) == stage] for stage in stages}
    configuration = [each for each in objects if each["kind"] == "ConfigMap" and stage_of(each) == Stage.TRAIN]
    for stage in (stage for stage in READERS if found.get(stage)):
        found[stage] += configuration
    for stage, its_objects in found.items():
        if not its_objects:
            raise ConfigError(f"This overlay has no {stage} step. Choose another overlay, or leave it out of --only.")
    return found


def stage_of(manifest: Manifest) -> str | None:
    """The step that an object belongs to.

    Objects of the whole cluster, and the namespace's quota and queue, belong to the administrator's step: the owner of
    a namespace may not write them.
    """
    if "namespace" not in manifest["metadata"] or manifest["kind"] in ("LocalQueue", "ResourceQuota"):
        return Stage.ADMIN
    if manifest["kind"] == "PersistentVolumeClaim":
        return Stage.CLAIMS
    label: str | None = manifest["metadata"].get("labels", {}).get(COMPONENT)
    return label


def named(objects: Iterable[Manifest], name: str) -> list[Manifest]:
    """Copies of objects under names of this experiment, which labels, selectors and volumes follow.

    `reference` becomes `reference-NAME`.
    """
    copies = deepcopy(list(objects))
    configs = {each["metadata"]["name"] for each in copies if each["kind"] == "ConfigMap"}
    for node in mappings(copies):
        if EXPERIMENT in node:
            node[EXPERIMENT] = name
        if (mounted := node.get("configMap")) and mounted["name"] in configs:
            mounted["name"] = f"{mounted['name']}-{name}"
    for metadata in (each["metadata"] for each in copies):
        metadata |= {"name": f"{metadata['name']}-{name}", "labels": {**metadata.get("labels", {}), EXPERIMENT: name}}
    return copies


def mappings(node: Any) -> Iterator[dict[str, Any]]:
    """Every mapping in manifests, from the manifests themselves down."""
    if isinstance(node, dict):
        yield node
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from mappings(value)


# The functions of run.sh. Calls that depend on what was rendered are written after them.
SCRIPT = Path(__file__).with_name("run.sh")
# The annotation with the digest of a step, by which run.sh sees whether the step has changed.
DIGEST = "restrain-digest"
PLATFORM = "configmap/runtime-environment"


def write(manifests: Mapping[Stage, Sequence[Manifest]], folder: Path) -> None:
    """Write a numbered file for each step into a new folder, and `run.sh`, which applies each and waits for it.

    Raises ConfigError if the folder is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            f"--out {folder}: is not empty. Name a new folder, so that no step of another run is applied."
        )
    folder.mkdir(parents=True, exist_ok=True)
    files = {stage: f"{number:02}-{stage}.yaml" for number, stage in enumerate(manifests, start=1)}
    # The calls come first, because they annotate the objects with digests.
    calls = [call for stage, file in files.items() for call in _calls(stage, file, manifests)]
    for stage, file in files.items():
        # A job comes last, after the policies and configuration that its pods need.
        objects = sorted(manifests[stage], key=lambda each: each["kind"] in JOBS)
        write_whole(folder / file, yaml.safe_dump_all(objects, sort_keys=False))
    every = [each for objects in manifests.values() for each in objects]
    text = "\n".join([*_settings(every), "ready", *calls, 'say "Everything is complete."', ""])
    script = folder / "run.sh"
    write_whole(script, SCRIPT.read_text(encoding="utf-8") + text)
    script.chmod(0o755)


def _settings(every: Sequence[Manifest]) -> list[str]:
    """Shell variables with the namespace, the experiment and the queue of the objects; empty if no object has one."""
    labels = [each["metadata"].get("labels", {}) for each in every]
    found = {
        "namespace": (each["metadata"].get("namespace") for each in every),
        "experiment": (each.get(EXPERIMENT) for each in labels),
        "queue": (each.get(QUEUE) for each in labels),
    }
    return [f"{name}={next(filter(None, values), '')}" for name, values in found.items()]


def _calls(stage: Stage, file: str, manifests: Mapping[Stage, Sequence[Manifest]]) -> list[str]:
    """The calls of a step in `run.sh`. Most are `step`, which applies the file and waits for its job."""
    objects = manifests[stage]
    if stage in (Stage.CLAIMS, Stage.REWARD, Stage.FILES):
        return [f"{'shared' if stage is Stage.REWARD else stage} {file}"]
    marked, resource = _marked(stage, objects)
    if stage in SHARED:
        return [f"{stage} {file} {marked}"]
    key = next((each["metadata"]["labels"].get(PASS) for each in objects if each["kind"] in JOBS), None)
    training = next((_resource(each) for each in manifests.get(Stage.TRAIN, ()) if each["kind"] in JOBS), "")
    words = f"{file} {resource} {marked}"
    call = f"{stage.replace('-', '_')} {words} {training}" if stage in READERS else f"step {words}"
    return [*([f"pass {key} {resource}"] if key else []), call]


def _marked(stage: Stage, objects: Sequence[Manifest]) -> tuple[str, str]:
    """The digest of a step, and the object that is annotated with it: the step's job, or one of the shared objects.

    A job's digest leaves out its images and resources, which do not change what it does. The digest of shared objects
    covers all of their content.
    """
    does = [
        {key: node[key] for key in ("command", "args", "entrypoint", "completions", "data") if key in node}
        for each in objects
        for node in mappings(each)
    ]
    text = json.dumps(objects if stage in SHARED else [each for each in does if each], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    bearer = next(each for each in objects if each["kind"] in (*JOBS, "Namespace") or _resource(each) == PLATFORM)
    bearer["metadata"]["annotations"] = {**bearer["metadata"].get("annotations", {}), DIGEST: digest}
    return digest, _resource(bearer)


def _resource(each: Manifest) -> str:
    return f"{each['kind'].lower()}/{each['metadata']['name']}"
