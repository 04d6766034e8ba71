"""The steps of an experiment on a cluster, in the order in which a user applies them."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.k8s.downloads import data_words
from restrain_openrlhf.k8s.experiment import Experiment

Manifest = dict[str, Any]
COMPONENT = "app.kubernetes.io/component"


class Stage(StrEnum):
    """Value of the component label of a step's objects."""

    PLATFORM = "platform"
    PREFETCH = "prefetch"
    DATA = "data"
    BENCHMARKS = "benchmarks"
    FILES = "files"
    REFERENCE = "reference"
    MERGE_REFERENCE = "merge-reference"
    TRAIN = "train"
    TEST_TIME = "test-time"
    EVALUATION = "evaluation"
    REGRADE = "regrade"
    REWARD = "reward"


OFFLINE_PASS = (Stage.REFERENCE, Stage.MERGE_REFERENCE)


class Job(StrEnum):
    """What a configuration is rendered for."""

    TRAIN = "train"
    TEST_TIME = "test-time"


def stages_of(experiment: Experiment, job: Job) -> tuple[Stage, ...]:
    """The steps this experiment needs: no download if the model is on a volume or the prompts are the user's own, no
    offline pass unless it is read.
    """
    from_hub = () if experiment.model.startswith("/") else (Stage.PREFETCH,)
    known = data_words(str(experiment.flags["data.prompt_dataset"]), test_time=job is Job.TEST_TIME)
    prompts = (Stage.DATA,) if known else ()
    if job is Job.TEST_TIME:
        return (Stage.PLATFORM, *from_hub, *prompts, Stage.TEST_TIME)
    offline = OFFLINE_PASS if experiment.reference else ()
    first = (Stage.PLATFORM, *from_hub, *prompts, Stage.BENCHMARKS)
    return (*first, *offline, Stage.TRAIN, Stage.EVALUATION, Stage.REGRADE)


def refuse_unread_pass(experiment: Experiment, stages: Iterable[Stage]) -> None:
    """Raises ConfigError where a step of the offline pass is selected and the method reads none."""
    if experiment.reference is None and (asked := [stage for stage in stages if stage in OFFLINE_PASS]):
        raise ConfigError(
            f"--only {asked[0]}: the method {experiment.document['method']['name']!r} reads no offline pass with these "
            "settings, or the configuration names no `reference:`. Leave the step out, or set it."
        )


def by_stage(manifests: Iterable[Manifest], stages: Iterable[Stage]) -> Mapping[Stage, list[Manifest]]:
    """The manifests of each of `stages`. Raises ConfigError for a step that the overlay does not have."""
    objects = list(manifests)
    found = {stage: [each for each in objects if _component(each) == stage] for stage in stages}
    for stage, its_objects in found.items():
        if not its_objects:
            raise ConfigError(f"This overlay has no {stage} step. Choose another overlay, or leave it out of --only.")
    return found


def images_in(node: Any) -> Iterable[str]:
    """Every container image below a manifest."""
    if isinstance(node, dict):
        if isinstance(node.get("image"), str):
            yield node["image"]
        for value in node.values():
            yield from images_in(value)
    elif isinstance(node, list):
        for value in node:
            yield from images_in(value)


def _component(manifest: Manifest) -> str | None:
    label: str | None = manifest["metadata"].get("labels", {}).get(COMPONENT)
    return label
