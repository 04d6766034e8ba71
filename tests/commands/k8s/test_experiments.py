"""Two experiments in one namespace: nothing but the platform is shared, and ending one leaves the other as it was."""

import copy
import itertools
from collections import Counter

import pytest

from restrain_openrlhf.commands.k8s.stages import SHARED, stage_of
from tests.commands.k8s import rules_jobs, rules_pods, rules_service
from tests.commands.k8s.experiments import PRESETS, experiment, needs_kustomize, rendered, replace, steps
from tests.commands.k8s.manifests import OVERLAYS, Object, Pod, built, of_kind, overlay, pods
from tests.commands.k8s.rules_experiments import (
    experiments_are_apart,
    identity,
    nothing_needs_a_force,
    own,
    policies_name_what_is_there,
    secrets_are_made_by_the_page,
)
from tests.commands.k8s.schemas import problems
from tests.commands.k8s.test_overlays import EVERYWHERE
from tests.conftest import ROOT

SECOND = ("--set", "run_dir=runs/second", "--set", "method.kappa=5")
ADAPTATION = "configs/test_time/llama3.1-8b-instruct/aime24/restrain.yaml"
# What one experiment's own objects cannot show: they are about the namespace's other residents.
ABOUT_ALL_STEPS = {rules_jobs.steps_agree}


def together(*experiments: list[Object]) -> list[Object]:
    """What the server holds when all are applied: of objects with the same name, the last."""
    return list({identity(each): each for objects in experiments for each in objects}.values())


def service(name: str) -> list[Object]:
    """The reward service, which all experiments may share."""
    return [each for each in overlay(name) if stage_of(each) == "reward"]


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


@pytest.mark.host
@pytest.mark.parametrize("name", LARGE)
def test_two_experiments_keep_every_rule_side_by_side(name):
    objects = together(*two(name), service(name))
    broken = [problem for rule in EVERYWHERE if rule not in ABOUT_ALL_STEPS for problem in rule(objects)]
    assert broken == []


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
@pytest.mark.parametrize("name", LARGE)
def test_deleting_one_experiment_leaves_the_others_policies(name):
    first, second = two(name)
    gone = {identity(each) for each in own(first)}
    left = [each for each in together(first, second) if identity(each) not in gone]
    assert {identity(each) for each in left} == {identity(each) for each in second}
    everyone = list(pods(own(second)))
    assert reach(left, everyone, everyone) == reach(second, everyone, everyone) != set()
    assert list(rules_service.training_is_reached_by_its_own(left)) == []


@pytest.mark.host
def test_a_training_and_a_test_time_adaptation_are_apart_too():
    training, adaptation = rendered(), rendered(config=ADAPTATION)
    objects = together(training, adaptation, service("8xa100-80g"))
    assert reach(objects, list(pods(own(training))), list(pods(own(adaptation)))) == set()
    assert list(rules_service.training_is_reached_by_its_own(objects)) == []
    assert list(experiments_are_apart(objects)) == []


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
    assert len(list(experiments_are_apart(objects))) == 6
    assert len(list(rules_service.training_is_reached_by_its_own(objects))) == 2


# Of every preset on every overlay; names, paths and flags are in test_names.py.
EACH = [
    rules_pods.own_service_accounts,
    rules_pods.mounts_resolve,
    rules_jobs.ray_job_rules,
    rules_jobs.queued_by_component,
    rules_jobs.in_the_namespace,
    rules_jobs.priorities_exist,
    rules_jobs.quota_holds_the_largest_job,
    experiments_are_apart,
    nothing_needs_a_force,
    policies_name_what_is_there,
    secrets_are_made_by_the_page,
    rules_service.default_deny,
    rules_service.policies_select_pods,
    rules_service.training_is_reached_by_its_own,
    rules_service.clients_reach_the_service,
    rules_service.selectors_match,
    rules_service.monitors_match,
]


@pytest.mark.host
@pytest.mark.parametrize("name", OVERLAYS)
def test_every_reference_of_every_preset_resolves_and_nothing_needs_a_force(name):
    needs_kustomize()
    for preset in presets(name):
        objects = together(steps(preset, name), service(name))
        assert [problem for rule in EACH for problem in rule(objects)] == [], preset


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


def test_the_tree_itself_is_labelled_throughout():
    needs_kustomize()
    assert list(experiments_are_apart(built(ROOT / "k8s" / "base"))) == []
