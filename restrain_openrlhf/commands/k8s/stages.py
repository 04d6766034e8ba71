"""The steps of an experiment on a cluster: which it needs, the objects of each, and the names of those objects."""

from collections.abc import Container, Iterable, Iterator, Mapping
from copy import deepcopy
from enum import StrEnum
from typing import Any

from restrain_openrlhf.commands.k8s.experiment import Experiment
from restrain_openrlhf.commands.k8s.patches import data_words
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
# Kinds whose completion run.sh waits for.
JOBS = ("Job", "RayJob")


def stages_of(experiment: Experiment) -> tuple[Stage, ...]:
    """The steps that this experiment needs.

    The model is not downloaded if it is on a volume, nor prompts that are the user's own. An offline pass has steps
    only if it is to be drawn.
    """
    from_hub = () if experiment.model.startswith("/") else (Stage.PREFETCH,)
    known = (Stage.DATA,) if data_words(experiment.prompts, experiment.job) else ()
    first = (*FIRST, *from_hub, *known)
    if experiment.job == "test-time":
        return (*first, Stage.TEST_TIME)
    checked = (Stage.PREMISE,) if "reference" in experiment.document else ()
    return (*first, Stage.BENCHMARKS, *_offline(experiment), *checked, Stage.TRAIN, Stage.EVALUATION, Stage.REGRADE)


def _offline(experiment: Experiment) -> tuple[Stage, ...]:
    if experiment.offline is None:
        return ()
    return OFFLINE_PASS if experiment.offline.is_cut else OFFLINE_PASS[:2]


def refuse_unread_pass(experiment: Experiment, stages: Iterable[Stage]) -> None:
    """Raises ConfigError for a selected step of an offline pass that this experiment does not have."""
    for stage in stages:
        if stage in OFFLINE_PASS and stage not in _offline(experiment):
            raise ConfigError(
                f"--only {stage}: this run has no such step. The step exists only where `reference:` names a file "
                "outside the volumes, made by an offline pass with this run's settings; a subset exists only where "
                "that pass has more rollouts per prompt than the run reads (raise pass_n). Change the configuration, "
                "or leave the step out of --only."
            )


def by_stage(manifests: Iterable[Manifest], stages: Iterable[Stage]) -> Mapping[Stage, list[Manifest]]:
    """The manifests of each of `stages`. Raises ConfigError for a step that the overlay does not have."""
    objects = list(manifests)
    found = {stage: [each for each in objects if stage_of(each) == stage] for stage in stages}
    if found.get(Stage.PREMISE):
        # The premise step reads training's configuration before training is applied.
        found[Stage.PREMISE] += [
            each for each in objects if each["kind"] == "ConfigMap" and stage_of(each) == Stage.TRAIN
        ]
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
    """Copies of objects under names of this experiment: `reference` becomes `reference-NAME`."""
    copies = deepcopy(list(objects))
    configs = {each["metadata"]["name"] for each in copies if each["kind"] == "ConfigMap"}
    for each in copies:
        _fill(each, name, configs)
        metadata = each["metadata"]
        metadata["name"] = f"{metadata['name']}-{name}"
        metadata["labels"] = {**metadata.get("labels", {}), EXPERIMENT: name}
    return copies


def _fill(manifest: Manifest, name: str, configs: Container[str]) -> None:
    """Set the experiment's label and selectors to `name`, and let volumes follow the new names of ConfigMaps."""
    for node in mappings(manifest):
        if EXPERIMENT in node:
            node[EXPERIMENT] = name
        if (mounted := node.get("configMap")) and mounted["name"] in configs:
            mounted["name"] = f"{mounted['name']}-{name}"


def mappings(node: Any) -> Iterator[dict[str, Any]]:
    """Every mapping in a manifest, from the manifest itself down."""
    if isinstance(node, dict):
        yield node
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from mappings(value)
