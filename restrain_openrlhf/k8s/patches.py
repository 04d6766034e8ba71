"""JSON6902 patches that turn an overlay's jobs into those of one experiment.

Strategic merge would drop a RayJob's pod templates: its worker groups are a plain list to Kustomize.
"""

from collections.abc import Sequence
from typing import Any

from restrain_openrlhf.k8s.downloads import BENCHMARKS_IN_POD, benchmark_words, data_words
from restrain_openrlhf.k8s.experiment import Experiment, Job
from restrain_openrlhf.k8s.shared_pass import SharedPass

Operation = dict[str, Any]
Patch = dict[str, Any]
WORKERS = "/spec/rayClusterSpec/workerGroupSpecs/0"
ARGS = "/spec/template/spec/containers/0/args"
PASS = "restrain-pass"
SHARD = "$(JOB_COMPLETION_INDEX)"
SECONDS_A_DAY = 86_400
CONFIG_IN_POD = "/etc/restrain/experiment.yaml"


def patches(experiment: Experiment, benchmarks: Sequence[str]) -> list[Patch]:
    """For the RayJob (on one node a Job) and every batch Job, under the names that they have in the tree.

    `benchmarks` are names. An experiment without an offline pass gets no patch for one.
    """
    deadline = _deadline(experiment)
    ray_job = [*_size(experiment), *deadline]
    if experiment.job is Job.TEST_TIME:
        ray_job.append(_replace("/spec/entrypoint", test_time_entrypoint(experiment)))
    evaluation = [_replace(ARGS, evaluation_words(experiment, benchmarks)), *_indexes(experiment.shards)]
    return [
        _patch("RayJob", str(experiment.job), ray_job),
        _patch("Job", str(experiment.job), [*_on_one_node(experiment), *deadline]),
        _patch("Job", "prefetch", [_replace(ARGS, [experiment.model])]),
        *(_patch("Job", "data", [_replace(ARGS, words)]) for words in [_data_words(experiment)] if words),
        _patch("Job", "benchmarks", [_replace(ARGS, benchmark_words(benchmarks))]),
        *(_offline(experiment.offline) if experiment.offline else ()),
        _patch("Job", "evaluation", evaluation),
        _patch("Job", "regrade", [_replace(ARGS, [f"{experiment.run_dir}/evaluation"])]),
    ]


def _deadline(experiment: Experiment) -> list[Operation]:
    if experiment.deadline_days is None:
        return []
    return [_replace("/spec/activeDeadlineSeconds", int(experiment.deadline_days * SECONDS_A_DAY))]


def _data_words(experiment: Experiment) -> list[str] | None:
    return data_words(str(experiment.flags["data.prompt_dataset"]), test_time=experiment.job is Job.TEST_TIME)


def _offline(shared: SharedPass) -> list[Patch]:
    """The pass is a label too, by which `run.sh` finds other experiments that draw the same one."""
    key = _replace(f"/metadata/labels/{PASS}", shared.key)
    return [
        _patch("Job", "reference", [_replace(ARGS, reference_words(shared)), *_indexes(shared.shards), key]),
        _patch("Job", "merge-reference", [_replace(ARGS, shared.merge_words())]),
        _patch("Job", "subset-reference", [_replace(ARGS, shared.subset_words())]),
    ]


def reference_words(shared: SharedPass) -> list[str]:
    """`restrain reference` with the prompts, template and sampling of the training, which checks them."""
    return [*map(_literal, shared.options.words()), f"--shard={SHARD}/{shared.shards}"]


def evaluation_words(experiment: Experiment, benchmarks: Sequence[str]) -> list[str]:
    """`restrain eval` of the trained model, with the prompts' template and the length of responses of its training.

    Benchmarks come from the work volume: pods have no network.
    """
    options = {
        "model": f"{experiment.run_dir}/model",
        "benchmarks": ",".join(benchmarks),
        "benchmark-dir": BENCHMARKS_IN_POD,
        "out": f"{experiment.run_dir}/evaluation",
        "max-new-tokens": experiment.flags["rollout.max_new_tokens"],
        "template": _template(experiment),
    }
    words = [f"--{name}={_literal(str(value))}" for name, value in options.items()]
    return [*words, f"--shard={SHARD}/{experiment.shards}"]


def _template(experiment: Experiment) -> str:
    flags = experiment.flags
    return "chat" if flags["data.apply_chat_template"] else str(flags["data.input_template"] or "plain")


def _literal(word: str) -> str:
    """Kubernetes reads $(NAME) in a container's arguments as a variable, and $$ as a plain $."""
    return word.replace("$", "$$")


def test_time_entrypoint(experiment: Experiment) -> str:
    """`test-time adapt`. Ray hides GPUs from an entrypoint that reserves none, so they are made visible."""
    words = " ".join(f"--{name} {value}" for name, value in _test_time_options(experiment).items())
    return f"env -u CUDA_VISIBLE_DEVICES test-time adapt {words}"


def _test_time_options(experiment: Experiment) -> dict[str, str]:
    return {
        "config": CONFIG_IN_POD,
        "model": experiment.model,
        "prompts": str(experiment.flags["data.prompt_dataset"]),
        "out": experiment.run_dir,
    }


def _on_one_node(experiment: Experiment) -> list[Operation]:
    """For the Job that runs where there is no KubeRay, with a Ray of its own in one pod."""
    words = [f"--{name}={_literal(value)}" for name, value in _test_time_options(experiment).items()]
    resources = "/spec/template/spec/containers/0/resources"
    gpus = [
        _replace(f"{resources}/{kind}/nvidia.com~1gpu", str(experiment.layout.gpus)) for kind in ("requests", "limits")
    ]
    return [*gpus, *([_replace(ARGS, words)] if experiment.job is Job.TEST_TIME else ())]


def _size(experiment: Experiment) -> list[Operation]:
    layout = experiment.layout
    counts = [_replace(f"{WORKERS}/{name}", layout.nodes) for name in ("replicas", "minReplicas", "maxReplicas")]
    resources = f"{WORKERS}/template/spec/containers/0/resources"
    gpus = [_replace(f"{resources}/{kind}/nvidia.com~1gpu", str(layout.gpus)) for kind in ("requests", "limits")]
    return [*counts, *gpus]


def _indexes(shards: int) -> list[Operation]:
    return [_replace("/spec/completions", shards), _replace("/spec/parallelism", shards)]


def _replace(path: str, value: object) -> Operation:
    return {"op": "replace", "path": path, "value": value}


def _patch(kind: str, name: str, operations: list[Operation]) -> Patch:
    return {"target": {"kind": kind, "name": name}, "operations": operations}
