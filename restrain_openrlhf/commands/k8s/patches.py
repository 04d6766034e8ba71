"""The JSON6902 patches that turn an overlay's jobs into those of one experiment, with the words of their commands.

A strategic merge would drop a RayJob's pod templates, because its worker groups are a plain list to Kustomize.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from restrain_openrlhf.commands.k8s.experiment import BENCHMARKS_IN_POD, Experiment, data_words

Change = tuple[str, object]
Patch = dict[str, Any]
WORKERS = "/spec/rayClusterSpec/workerGroupSpecs/0"
ARGS = "/spec/template/spec/containers/0/args"
PASS = "restrain-pass"
QUEUE = "kueue.x-k8s.io/queue-name"
SHARD = "$(JOB_COMPLETION_INDEX)"
SECONDS_A_DAY = 86_400
# The deadline is set on the pod, whose clock starts on its node; a Job's own clock would run while its pods wait. The
# two deadlines of a RayJob are equal, so that waiting uses up no retry.
POD_CLOCK = "/spec/template/spec/activeDeadlineSeconds"
RAY_CLOCKS = ("/spec/activeDeadlineSeconds", "/spec/preRunningDeadlineSeconds")
CONFIG_IN_POD = "/etc/restrain/experiment.yaml"
# The step that tries the GPUs in training's own pods.
CHECK = "gpu-check"


def json_patch(target: Mapping[str, str], *changes: Change, op: str = "replace") -> Patch:
    """A JSON6902 patch in Kustomize's form. `changes` are paths with their new values."""
    return {
        "target": dict(target),
        "operations": [{"op": op, "path": path, "value": value} for path, value in changes],
    }


def patches(experiment: Experiment) -> list[Patch]:
    """Patches for the RayJobs (Jobs on one node) and for every batch Job, by their names in the tree.

    An experiment without an offline pass gets no patch for one.
    """
    words = data_words(experiment.prompts, experiment.job)
    return [
        *(json_patch({"kind": "RayJob", "name": name}, *_ray_job(experiment)) for name in (experiment.job, CHECK)),
        *(_job(name, *_on_one_node(experiment)) for name in (experiment.job, CHECK)),
        _job("prefetch", (ARGS, [experiment.model])),
        json_patch({"kind": "Pod", "name": "files"}, ("/spec/containers/0/args", _folders(experiment))),
        *([_job("data", (ARGS, words))] if words else []),
        _job("benchmarks", (ARGS, ["benchmarks", ",".join(experiment.fetched), f"--out={BENCHMARKS_IN_POD}"])),
        *_pass_jobs(experiment),
        _job("evaluation", (ARGS, _evaluation_words(experiment)), *_indexes(experiment.shards)),
        _job("regrade", (ARGS, [f"{experiment.run_dir}/evaluation"])),
    ]


def _folders(experiment: Experiment) -> list[str]:
    """The folders that the pod of the step `files` makes, into which files are copied."""
    return sorted({BENCHMARKS_IN_POD, *(str(path.parent) for path in experiment.copied)})


def _job(name: str, *changes: Change) -> Patch:
    return json_patch({"kind": "Job", "name": name}, *changes)


def _ray_job(experiment: Experiment) -> list[Change]:
    counts = [(f"{WORKERS}/{name}", experiment.layout.nodes) for name in ("replicas", "minReplicas", "maxReplicas")]
    # Ray hides the GPUs from an entrypoint that reserves none, by this variable.
    words = " ".join(f"--{name} {value}" for name, value in _test_time_options(experiment).items())
    entry = f"env -u CUDA_VISIBLE_DEVICES test-time adapt {words}"
    adapts = [("/spec/entrypoint", entry)] if experiment.job == "test-time" else []
    return [*counts, *_gpus(experiment, f"{WORKERS}/template"), *_deadline(experiment, *RAY_CLOCKS), *adapts]


def _on_one_node(experiment: Experiment) -> list[Change]:
    """Changes to the Job that trains where there is no KubeRay: one pod, which starts its own Ray."""
    words = [f"--{name}={_literal(value)}" for name, value in _test_time_options(experiment).items()]
    adapts = [(ARGS, words)] if experiment.job == "test-time" else []
    return [*_gpus(experiment, "/spec/template"), *adapts, *_deadline(experiment, POD_CLOCK)]


def _test_time_options(experiment: Experiment) -> dict[str, str]:
    return {
        "config": CONFIG_IN_POD,
        "model": experiment.model,
        "prompts": experiment.prompts,
        "out": experiment.run_dir,
    }


def _gpus(experiment: Experiment, template: str) -> list[Change]:
    path = f"{template}/spec/containers/0/resources/{{}}/nvidia.com~1gpu"
    return [(path.format(kind), str(experiment.layout.gpus)) for kind in ("requests", "limits")]


def _deadline(experiment: Experiment, *clocks: str) -> list[Change]:
    days = experiment.deadline_days
    return [] if days is None else [(clock, int(days * SECONDS_A_DAY)) for clock in clocks]


def _indexes(shards: int) -> list[Change]:
    return [("/spec/completions", shards), ("/spec/parallelism", shards)]


def _pass_jobs(experiment: Experiment) -> list[Patch]:
    """`restrain reference` in shards, with the prompts, template and sampling that training checks, and its merging.

    The key of the pass is also a label, by which `run.sh` finds other experiments that draw the same pass.
    """
    shared = experiment.offline
    if shared is None:
        return []
    sampled = shared.options.model_copy(update={"out": Path(shared.file)}).words()
    words = [*map(_literal, sampled), f"--shard={SHARD}/{shared.shards}"]
    return [
        _job("reference", (ARGS, words), *_indexes(shared.shards), (f"/metadata/labels/{PASS}", shared.key)),
        _job("merge-reference", (ARGS, [f"--out={shared.file}", *map(str, shared.parts)])),
        _job("subset-reference", (ARGS, [f"--out={shared.reference}", f"--n={shared.kept}", str(shared.file)])),
    ]


def _evaluation_words(experiment: Experiment) -> list[str]:
    """`restrain eval` of the model that the run gives, with the template and the longest response of its training.

    Benchmarks are read from the work volume, because the pods have no network.
    """
    flags = experiment.flags
    options = {
        "model": experiment.run_dir,
        "benchmarks": ",".join(experiment.benchmarks),
        "benchmark-dir": BENCHMARKS_IN_POD,
        "out": f"{experiment.run_dir}/evaluation",
        "max-new-tokens": flags["rollout.max_new_tokens"],
        "template": "chat" if flags["data.apply_chat_template"] else flags["data.input_template"] or "plain",
    }
    words = [f"--{name}={_literal(str(value))}" for name, value in options.items()]
    return [*words, f"--shard={SHARD}/{experiment.shards}"]


def _literal(word: str) -> str:
    """The word with each $ doubled: in arguments, Kubernetes reads $(NAME) as a variable and $$ as a plain $."""
    return word.replace("$", "$$")
