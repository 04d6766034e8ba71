"""Whatever the manifests, their comments and their page name resolves against the real registries and parsers."""

import re
import shlex
from collections.abc import Iterator

import pytest
import yaml

from restrain_openrlhf.commands.k8s.stages import OFFLINE_PASS, Stage, stage_of, stages_of
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.data.benchmarks import BENCHMARKS, PAPER_BENCHMARKS
from restrain_openrlhf.method import build
from tests.commands.k8s import rules_jobs
from tests.commands.k8s.experiments import PRESET, PRESETS, experiment, job_of, needs_kustomize, rendered, steps
from tests.commands.k8s.manifests import OVERLAYS, Object, of_kind, overlay, runs
from tests.commands.k8s.rules_names import command_of, names_resolve, paths_are_mounted, unresolved
from tests.conftest import ROOT

OCTOTHINKER = "configs/dapo14k/octothinker-8b-hybrid-base/restrain.yaml"
PAGE = ROOT / "docs" / "operations" / "kubernetes.md"
TEXT = PAGE.read_text(encoding="utf-8")
TREE = [*sorted((ROOT / "k8s").rglob("*.yaml")), PAGE]
FILE = re.compile(r"\b(?:configs|docs|k8s|docker|requirements|tests)/[\w./-]+\.(?:yaml|md|py|txt|Dockerfile)\b")
COMMAND = re.compile(r"`((?:restrain|test-time) [^`…]*?)(?: ?\.\.\.)?`")


def words_of(objects: list[Object], step: str) -> dict[str, str]:
    (job,) = [each for each in of_kind(objects, "Job") if stage_of(each) == step]
    args = job["spec"]["template"]["spec"]["containers"][0]["args"]
    return dict(word.removeprefix("--").split("=", 1) for word in args if "=" in word)


def on_cluster(preset: str, name: str) -> bool:
    """Whether the overlay has the step: the one with RDMA has no test-time RL."""
    return job_of(preset) == "train" or not name.endswith("-rdma")


@pytest.mark.host
@pytest.mark.parametrize("preset", PRESETS)
def test_every_name_in_a_presets_manifests_resolves(preset, tmp_path):
    needs_kustomize()
    for name in OVERLAYS:
        if not on_cluster(preset, name):
            continue
        objects = steps(preset, name)
        found = [*names_resolve(objects), *paths_are_mounted(objects), *rules_jobs.steps_agree(objects)]
        assert [*found, *rules_jobs.experiments_fit(objects, tmp_path)] == [], name


@pytest.mark.host
@pytest.mark.parametrize(
    ("preset", "name"),
    [
        (PRESET, "multi-node-h100-rdma"),
        ("configs/dapo14k/qwen3-4b-base/ttrl.yaml", "8xa100-80g"),
        ("configs/test_time/llama3.1-8b-instruct/aime24/restrain.yaml", "multi-node-h100"),
    ],
)
def test_the_real_rendering_has_the_words_that_are_checked_above(preset, name):
    real = rendered(config=preset, overlay=name)
    assert comparable(real) == comparable(steps(preset, name))


def comparable(objects: list[Object]) -> str:
    """Without images, annotations of the objects themselves, order, and the hashes of names."""
    bare = [{**each, "metadata": {**each["metadata"], "annotations": None}} for each in objects]
    text = yaml.dump_all(sorted(bare, key=lambda each: (each["kind"], each["metadata"]["name"])))
    return re.sub(r"(image: ).*|(-experiment)-[a-z0-9]{10}|(restrain-train)@.*", r"\1\2\3", text)


def test_the_evaluation_runs_the_papers_benchmarks_whether_rendered_or_not():
    assert {"mmlu_stem", "gpqa_diamond", "minerva_math"} <= set(PAPER_BENCHMARKS) <= set(BENCHMARKS)
    for name in OVERLAYS:
        assert words_of(overlay(name), "evaluation")["benchmarks"].split(",") == list(PAPER_BENCHMARKS)


@pytest.mark.host
@pytest.mark.parametrize(("preset", "length"), [(OCTOTHINKER, "8192"), (PRESET, "4096")])
def test_responses_are_as_long_in_evaluation_as_in_training(preset, length):
    needs_kustomize()
    assert words_of(steps(preset, "8xa100-80g"), "evaluation")["max-new-tokens"] == length


@pytest.mark.host
@pytest.mark.parametrize(
    ("preset", "overlay", "days"),
    [
        (OCTOTHINKER, "8xa100-80g", 60),
        (OCTOTHINKER, "single-node-8gpu", 60),
        (PRESET, "single-node-8gpu", 14),
        # Without Kueue its clock runs while its pods wait.
        (PRESET, "8xa100-80g", 28),
        (PRESET, "multi-node-h100", 14),
    ],
)
def test_a_trys_deadline_is_the_configurations_or_the_trees(preset, overlay, days):
    needs_kustomize()
    (job,) = runs(steps(preset, overlay))
    spec = job["spec"] if job["kind"] == "RayJob" else job["spec"]["template"]["spec"]
    assert spec["activeDeadlineSeconds"] == days * 24 * 3600


@pytest.mark.host
def test_fewer_benchmarks_may_be_asked_for():
    objects = rendered("--benchmarks", "math500, aime25", "--only", "evaluation")
    assert words_of(objects, "evaluation")["benchmarks"] == "math500,aime25"


@pytest.mark.host
@pytest.mark.parametrize("preset", [preset for preset in PRESETS if job_of(preset) == "train"])
def test_there_is_an_offline_pass_exactly_where_the_method_reads_one(preset):
    made = experiment(preset, "8xa100-80g")
    reads = build(load_run_config(ROOT / preset).method).needs_reference
    assert (set(OFFLINE_PASS[:2]) <= set(stages_of(made))) is reads
    assert bool(set(OFFLINE_PASS) & set(stages_of(made))) is reads
    # A reference that nobody makes would be waited for in vain.
    assert ("reference" in made.document) is reads


def test_what_reads_no_offline_pass_is_among_the_presets():
    methods = {preset: build(load_run_config(ROOT / preset).method) for preset in PRESETS}
    without = {preset for preset, method in methods.items() if not method.needs_reference}
    assert {f"configs/dapo14k/qwen3-4b-base/{name}.yaml" for name in ("ttrl", "grpo_gold")} <= without
    assert {"configs/ablations/no_prompt_weight.yaml", "configs/ablations/online_prompt_weight.yaml"} <= without
    assert PRESET not in without


@pytest.mark.parametrize("path", TREE, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_commands_and_options_named_in_a_text_exist(path):
    text = path.read_text(encoding="utf-8")
    assert [name for name in FILE.findall(text) if not (ROOT / name).exists()] == []
    commands = [words for words in map(shlex.split, COMMAND.findall(text)) if len(words) > 1]
    assert [problem for words in commands for problem in unknown_in(words)] == []


def unknown_in(words: list[str]) -> Iterator[str]:
    """Of a command in a sentence, which need not be whole: its name and its options."""
    command, rest = command_of(words[0], words[1:])
    options = {option for parameter in command.params for option in parameter.opts}
    yield from (f"{words}: no option {word}" for word in rest if word.startswith("-") and word not in options)


def test_every_command_line_of_the_pages_parses():
    lines = re.sub(r"\\\n\s+", "", TEXT)
    commands = [
        shlex.split(line, comments=True) for line in re.findall(r"^ {4}((?:restrain|hf) .*)", lines, re.MULTILINE)
    ]
    assert len(commands) > 3
    assert [problem for words in commands for problem in unresolved(words)] == []


# What Kubernetes' ClusterRole `admin` may write, of the kinds that are used here.
ADMIN_ROLE = {
    "ConfigMap",
    "Deployment",
    "HorizontalPodAutoscaler",
    "Job",
    "NetworkPolicy",
    "PersistentVolumeClaim",
    "Pod",
    "PodDisruptionBudget",
    "Service",
    "ServiceAccount",
}


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_pages_grant_what_a_namespaces_administrator_lacks(name):
    text = TEXT.replace("\\\n", " ")
    granted = set(re.findall(r"--verb=\S*create\S*\s+--resource=(\S+)", text))
    resources = {resource.partition(".")[0] for words in granted for resource in words.split(",")}
    used = {each["kind"] for each in overlay(name) if stage_of(each) is not Stage.ADMIN}
    assert {f"{kind.lower()}s" for kind in used - ADMIN_ROLE} <= resources


def test_the_pages_name_every_benchmark_that_an_evaluation_needs():
    assert [name for name in PAPER_BENCHMARKS if f"`{name}`" not in TEXT] == []


@pytest.mark.parametrize("folder", ["base/reward", "components/url-only"])
def test_the_reward_services_configuration_is_one(folder):
    pytest.importorskip("fastapi", reason="needs the reward service (pip install restrain-openrlhf[service])")
    from restrain_openrlhf.scoring.service.service_config import load_service_config

    load_service_config(ROOT / "k8s" / folder / "reward.yaml")
