"""The steps of an experiment on a cluster: which it needs, whose objects have its name, and the files of them."""

import hashlib
import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from restrain_openrlhf.commands.k8s.experiment import Experiment
from restrain_openrlhf.commands.k8s.patches import PASS, QUEUE, data_words
from restrain_openrlhf.config.shipped import KUBERNETES
from restrain_openrlhf.errors import ConfigError

Manifest = dict[str, Any]
COMPONENT = "app.kubernetes.io/component"
# On every pod of an experiment, and in the selectors of its network policies. The tree's own value stands for none.
EXPERIMENT = "restrain-experiment"


class Stage(StrEnum):
    """Value of the component label of a step's objects; the cluster administrator's are known by their kind."""

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
# What all experiments of a namespace use; every other step's objects are one experiment's own.
SHARED = frozenset({Stage.ADMIN, Stage.PLATFORM, Stage.CLAIMS, Stage.REWARD})
# What any step needs, so that each rendering has it: where it is there already, run.sh leaves it alone.
FIRST = (Stage.ADMIN, Stage.PLATFORM, Stage.CLAIMS)
# What is waited for.
JOBS = ("Job", "RayJob")
# Kinds that an operator brings, as `kubectl get` names them.
OPERATORS = {"RayJob": "rayjobs", "PodMonitor": "podmonitors"}
# The annotation that says what an object was made from, and what bears it for the administrator's and the platform's.
DIGEST = "restrain-digest"
PLATFORM = "configmap/runtime-environment"


def stages_of(experiment: Experiment) -> tuple[Stage, ...]:
    """The steps this experiment needs: no download if the model is on a volume or the prompts are the user's own, no
    offline pass unless it is made.
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
    """Raises ConfigError where a step of the offline pass is selected and the experiment has none of it."""
    for stage in stages:
        if stage in OFFLINE_PASS and stage not in _offline(experiment):
            raise ConfigError(
                f"--only {stage}: there is no such step. This run reads no offline pass with its settings, or names no "
                "`reference:`, or one on a volume; or it reads every rollout of the pass, and needs no subset: then "
                "raise pass_n. Change that, or leave the step out."
            )


def by_stage(manifests: Iterable[Manifest], stages: Iterable[Stage]) -> Mapping[Stage, list[Manifest]]:
    """The manifests of each of `stages`. Raises ConfigError for a step that the overlay does not have."""
    objects = list(manifests)
    found = {stage: [each for each in objects if stage_of(each) == stage] for stage in stages}
    if found.get(Stage.PREMISE):
        # It reads training's configuration before training is applied.
        found[Stage.PREMISE] += [
            each for each in objects if each["kind"] == "ConfigMap" and stage_of(each) == Stage.TRAIN
        ]
    for stage, its_objects in found.items():
        if not its_objects:
            raise ConfigError(f"This overlay has no {stage} step. Choose another overlay, or leave it out of --only.")
    return found


def stage_of(manifest: Manifest) -> str | None:
    """The step that an object belongs to.

    A namespace's own administrator may not write objects of the whole cluster, nor the namespace's share of it.
    """
    if "namespace" not in manifest["metadata"] or manifest["kind"] in ("LocalQueue", "ResourceQuota"):
        return Stage.ADMIN
    if manifest["kind"] == "PersistentVolumeClaim":
        return Stage.CLAIMS
    label: str | None = manifest["metadata"].get("labels", {}).get(COMPONENT)
    return label


def named(objects: Iterable[Manifest], name: str) -> list[Manifest]:
    """Copies of an experiment's objects that no other experiment has: `reference` becomes `reference-NAME`."""
    copies = deepcopy(list(objects))
    configs = {each["metadata"]["name"] for each in copies if each["kind"] == "ConfigMap"}
    for each in copies:
        _fill(each, name, configs)
        metadata = each["metadata"]
        metadata["name"] = f"{metadata['name']}-{name}"
        metadata["labels"] = {**metadata.get("labels", {}), EXPERIMENT: name}
    return copies


def _fill(manifest: Manifest, name: str, configs: Container[str]) -> None:
    """Labels and selectors of the key take the name as their value; volumes follow the ConfigMaps' new names."""
    for node in mappings(manifest):
        if EXPERIMENT in node:
            node[EXPERIMENT] = name
        if (mounted := node.get("configMap")) and mounted["name"] in configs:
            mounted["name"] = f"{mounted['name']}-{name}"


def mappings(node: Any) -> Iterator[dict[str, Any]]:
    """A manifest and every mapping below it."""
    if isinstance(node, dict):
        yield node
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from mappings(value)


def write(manifests: Mapping[Stage, Sequence[Manifest]], folder: Path) -> None:
    """Write a numbered file for each step into a new folder, and `run.sh`, which applies them and waits for each.

    Raises ConfigError where the folder holds something.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            f"--out {folder}: is not empty. Name a new folder, so that no step of another run is applied."
        )
    folder.mkdir(parents=True, exist_ok=True)
    files = {stage: f"{number:02}-{stage}.yaml" for number, stage in enumerate(manifests, start=1)}
    calls = [call for stage, file in files.items() for call in _calls(stage, file, manifests)]
    for stage, file in files.items():
        (folder / file).write_text(_text_of(manifests[stage]), encoding="utf-8")
    every = [each for objects in manifests.values() for each in objects]
    text = "\n".join([*_settings(every), "ready", *calls, 'say "Everything is complete."', ""])
    script = folder / "run.sh"
    script.write_text((KUBERNETES / "run.sh").read_text(encoding="utf-8") + text, encoding="utf-8")
    script.chmod(0o755)


def _settings(every: Sequence[Manifest]) -> list[str]:
    """Names that all steps have in common; none where nothing has one."""
    labels = [each["metadata"].get("labels", {}) for each in every]
    found = {
        "namespace": (each["metadata"].get("namespace") for each in every),
        "experiment": (each.get(EXPERIMENT) for each in labels),
        "queue": (each.get(QUEUE) for each in labels),
    }
    return [f"{name}={next(filter(None, values), '')}" for name, values in found.items()]


def _needs(manifests: Mapping[Stage, Sequence[Manifest]]) -> list[str]:
    """What `run.sh` looks for before anything is downloaded: kinds that Kubernetes itself does not have, and the queue."""
    every = [each for objects in manifests.values() for each in objects]
    kinds = {each["kind"] for each in every}
    queues = sorted({each["metadata"].get("labels", {}).get(QUEUE, "") for each in every} - {""})
    wanted = [*(name for kind, name in OPERATORS.items() if kind in kinds), *(f"localqueues/{each}" for each in queues)]
    return [f"needs {each}" for each in wanted]


def _calls(stage: Stage, file: str, manifests: Mapping[Stage, Sequence[Manifest]]) -> list[str]:
    """What `run.sh` does: `step` applies the file and waits for its job."""
    objects = manifests[stage]
    if stage in (Stage.CLAIMS, Stage.REWARD, Stage.FILES):
        return [f"{'claims' if stage is Stage.CLAIMS else 'shared'} {file}"]
    marked, resource = _marked(stage, objects)
    if stage in SHARED:
        return [f"{stage} {file} {marked}", *(_needs(manifests) if stage is Stage.ADMIN else [])]
    key = next((each["metadata"]["labels"].get(PASS) for each in objects if each["kind"] in JOBS), None)
    training = next((_resource(each) for each in manifests.get(Stage.TRAIN, ()) if each["kind"] in JOBS), "")
    call = f"{'premise' if stage is Stage.PREMISE else 'step'} {file} {resource} {marked}"
    return [*([f"pass {key} {resource}"] if key else []), f"{call} {training}" if stage is Stage.PREMISE else call]


def _marked(stage: Stage, objects: Sequence[Manifest]) -> tuple[str, str]:
    """The digest of what a step does, also as an annotation of its job, and the job; of shared objects, of all they say.

    Images, and what pods are given to run with, change nothing in what is done.
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


def _text_of(objects: Iterable[Manifest]) -> str:
    """The objects as YAML; a job comes last, after the policies and configuration that its pods need."""
    return yaml.safe_dump_all(sorted(objects, key=lambda each: each["kind"] in JOBS), sort_keys=False)
