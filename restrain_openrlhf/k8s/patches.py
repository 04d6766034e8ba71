"""JSON6902 patches that turn an overlay's jobs into those of one experiment.

Strategic merge would drop a RayJob's pod templates: its worker groups are a plain list to Kustomize.
"""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from restrain_openrlhf.k8s.downloads import BENCHMARKS_IN_POD, benchmark_words, data_words
from restrain_openrlhf.k8s.experiment import Experiment
from restrain_openrlhf.k8s.stages import Job
from restrain_openrlhf.run.offline_options import OfflineOptions

Operation = dict[str, Any]
Patch = dict[str, Any]
WORKERS = "/spec/rayClusterSpec/workerGroupSpecs/0"
ARGS = "/spec/template/spec/containers/0/args"
SHARD = "$(JOB_COMPLETION_INDEX)"
CONFIG_IN_POD = "/etc/restrain/experiment.yaml"


def patches(
    experiment: Experiment,
    job: Job,
    shards: int,
    benchmarks: Sequence[str],
    reference_rollouts: int | None = None,
) -> list[Patch]:
    """For the RayJob of `job` (on one node a Job) and all batch Jobs; `shards`: indexes of the Indexed Jobs.

    `benchmarks` are names, for the evaluation. `reference_rollouts` is the offline pass's rollouts per prompt, the
    configuration's if None; an experiment without an offline pass gets no patch for it.
    """
    name = _replace("/metadata/name", f"{job}-{experiment.name.removeprefix(f'{job}-')}")
    ray_job = [*_size(experiment), name]
    if job is Job.TEST_TIME:
        ray_job.append(_replace("/spec/entrypoint", test_time_entrypoint(experiment)))
    evaluation = [_replace(ARGS, evaluation_words(experiment, shards, benchmarks)), *_indexes(shards)]
    return [
        _patch("RayJob", str(job), ray_job),
        _patch("Job", str(job), [*_on_one_node(experiment, job), name]),
        _patch("Job", "prefetch", [_replace(ARGS, [experiment.model])]),
        *(_patch("Job", "data", [_replace(ARGS, words)]) for words in [_data_words(experiment, job)] if words),
        _patch("Job", "benchmarks", [_replace(ARGS, benchmark_words(benchmarks))]),
        *(_offline(experiment, experiment.reference, shards, reference_rollouts) if experiment.reference else ()),
        _patch("Job", "evaluation", evaluation),
        _patch("Job", "regrade", [_replace(ARGS, [f"{experiment.run_dir}/evaluation"])]),
    ]


def _data_words(experiment: Experiment, job: Job) -> list[str] | None:
    return data_words(str(experiment.flags["data.prompt_dataset"]), test_time=job is Job.TEST_TIME)


def _offline(experiment: Experiment, out: str, shards: int, rollouts: int | None) -> list[Patch]:
    words = reference_words(experiment, out, shards, rollouts)
    return [
        _patch("Job", "reference", [_replace(ARGS, words), *_indexes(shards)]),
        _patch("Job", "merge-reference", [_replace(ARGS, merge_words(out, shards))]),
    ]


def reference_words(experiment: Experiment, out: str, shards: int, rollouts: int | None = None) -> list[str]:
    """`restrain reference` with the prompts, template and sampling of the training, which checks them."""
    return OfflineOptions.from_flags(
        {name: _literal(value) for name, value in experiment.flags.items()},
        model=_literal(experiment.model),
        out=_literal(out),
        n=rollouts or experiment.document.get("reference_n"),
        tensor_parallel_size=1,
        shard=f"{SHARD}/{shards}",
    ).words()


def merge_words(reference: str, shards: int) -> list[str]:
    """`restrain merge-reference` over the files that the shards write (reference/parts.py)."""
    out = PurePosixPath(reference)
    parts = [out.with_name(f"{out.stem}.shard-{index}-of-{shards}{out.suffix}") for index in range(shards)]
    return [f"--out={out}", *map(str, parts)]


def evaluation_words(experiment: Experiment, shards: int, benchmarks: Sequence[str]) -> list[str]:
    """`restrain eval` of the trained model, with responses as long as in training.

    Benchmarks come from the work volume: pods have no network.
    """
    options = {
        "model": f"{experiment.run_dir}/model",
        "benchmarks": ",".join(benchmarks),
        "benchmark-dir": BENCHMARKS_IN_POD,
        "out": f"{experiment.run_dir}/evaluation",
        "max-new-tokens": experiment.flags["rollout.max_new_tokens"],
    }
    words = [f"--{name}={_literal(str(value))}" for name, value in options.items()]
    return [*words, f"--shard={SHARD}/{shards}"]


def _literal(value: Any) -> Any:
    """Kubernetes reads $(NAME) in a container's arguments as a variable, and $$ as a plain $."""
    return value.replace("$", "$$") if isinstance(value, str) else value


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


def _on_one_node(experiment: Experiment, job: Job) -> list[Operation]:
    """For the Job that runs where there is no KubeRay, with a Ray of its own in one pod."""
    words = [f"--{name}={_literal(value)}" for name, value in _test_time_options(experiment).items()]
    resources = "/spec/template/spec/containers/0/resources"
    gpus = [
        _replace(f"{resources}/{kind}/nvidia.com~1gpu", str(experiment.layout.gpus)) for kind in ("requests", "limits")
    ]
    return [*gpus, *([_replace(ARGS, words)] if job is Job.TEST_TIME else ())]


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
