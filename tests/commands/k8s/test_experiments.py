"""Two experiments in one namespace: nothing but the platform is shared, and ending one leaves the other as it was."""

import copy
import itertools
from collections import Counter

import pytest

from restrain_openrlhf.commands.k8s.stages import SHARED, stage_of
from tests.commands.k8s import rules_service
from tests.commands.k8s.experiments import PRESETS, experiment, needs_kustomize, rendered, replace, steps
from tests.commands.k8s.manifests import OVERLAYS, Object, Pod, of_kind, overlay, pods
from tests.commands.k8s.schemas import problems

SECOND = ("--set", "run_dir=runs/second", "--set", "method.kappa=5")
ADAPTATION = "configs/test_time/llama3.1-8b-instruct/aime24/restrain.yaml"


def own(objects: list[Object]) -> list[Object]:
    """The objects of experiments: all but the platform's, the administrator's and the reward service's."""
    return [each for each in objects if stage_of(each) not in SHARED]


def identity(each: Object) -> tuple[str, str | None, str]:
    return each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]


def together(*experiments: list[Object]) -> list[Object]:
    """What the server holds when all are applied: of objects with the same name, the last."""
    return list({identity(each): each for objects in experiments for each in objects}.values())


def two(name: str) -> tuple[list[Object], list[Object]]:
    """Two experiments with the same model and prompts, by the real command."""
    return rendered(overlay=name), rendered(*SECOND, overlay=name)


# The overlay of one GPU takes no preset of eight as it is.
LARGE = [name for name in OVERLAYS if name in ("8xa100-80g", "multi-node-h100", "multi-node-h100-rdma")]


@pytest.mark.host
@pytest.mark.parametrize("name", LARGE)
def test_two_experiments_share_the_platform_alone(name, shared):
    first, second = two(name)
    both = {identity(each) for each in first} & {identity(each) for each in second}
    assert both == {identity(each) for each in first if stage_of(each) in SHARED}
    # Applying the second changes nothing of what they share.
    assert [each for each in first if identity(each) in both] == [each for each in second if identity(each) in both]
    objects = together(first, second)
    assert [problem for each in objects for problem in problems(each, shared / "k8s" / "crds")] == []


def reach(objects: list[Object], sources: list[Pod], targets: list[Pod]) -> set[tuple[str, str]]:
    pairs = itertools.product(sources, targets)
    return {(source.name, target.name) for source, target in pairs if rules_service.reaches(objects, source, target)}


@pytest.mark.host
@pytest.mark.parametrize("name", LARGE)
def test_no_pod_of_one_experiment_reaches_a_pod_of_the_other(name):
    first, second = two(name)
    objects = together(first, second)
    assert reach(objects, list(pods(own(first))), list(pods(own(second)))) == set()
    assert reach(objects, list(pods(own(second))), list(pods(own(first)))) == set()
    ray = [pod for pod in pods(own(first)) if pod.role in ("head", "worker")]
    assert len(reach(objects, ray, ray)) == 4


@pytest.mark.host
def test_a_training_and_a_test_time_adaptation_are_apart_too():
    training, adaptation = rendered(), rendered(config=ADAPTATION)
    objects = together(training, adaptation)
    assert reach(objects, list(pods(own(training))), list(pods(own(adaptation)))) == set()
    assert list(rules_service.training_is_reached_by_its_own(objects)) == []


@pytest.mark.host
def test_policies_that_select_every_training_are_found():
    """As they were: one set for all runs, under fixed names."""
    first, second = copy.deepcopy(two("8xa100-80g"))
    objects = together(first, second)
    for each in of_kind(own(objects), "NetworkPolicy"):
        if each["metadata"]["name"].startswith("train-cluster"):
            side = {"podSelector": {"matchLabels": {"app.kubernetes.io/component": "train"}}}
            replace(each, "/spec/podSelector", side["podSelector"])
            replace(each, "/spec/ingress/0/from", [side])
            replace(each, "/spec/egress/0/to", [side])
    assert reach(objects, list(pods(own(first))), list(pods(own(second)))) != set()
    assert len(list(rules_service.training_is_reached_by_its_own(objects))) == 2


@pytest.mark.host
@pytest.mark.parametrize("name", OVERLAYS)
def test_no_two_presets_have_an_object_in_common_but_the_platform(name):
    needs_kustomize()
    # Those of a study have one folder between them: `restrain study` gives each its own.
    alone = [preset for preset in presets(name) if not preset.startswith("configs/cpu/study/")]
    counts = Counter(identity(each) for preset in alone for each in own(steps(preset, name)))
    assert [found for found, count in counts.items() if count > 1] == []
    names = [experiment(preset, name).name for preset in alone]
    assert len(names) == len(set(names)) > 30
    paths = [str(experiment(preset, name).document["run_dir"]) for preset in alone]
    assert len(paths) == len(set(paths))


def presets(name: str) -> list[str]:
    """Those whose step the overlay has."""
    there = {stage_of(each) for each in overlay(name)}
    return [preset for preset in PRESETS if experiment(preset, name).job in there]
