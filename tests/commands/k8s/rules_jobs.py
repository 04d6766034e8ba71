"""Rules: the steps of an experiment agree with each other, and with what OpenRLHF and the nodes take."""

import shlex
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from restrain_openrlhf.config.gpu_layout import GpuLayout
from restrain_openrlhf.config.host_flags import host_flags, parse, to_arguments
from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.errors import RestrainError
from tests.commands.k8s.manifests import Object, of_kind, pods, runs

CLUSTER_WIDE = {"Namespace", "PriorityClass", "ClusterQueue", "ResourceFlavor", "WorkloadPriorityClass"}


def worker_gpus(run: Object) -> int:
    """GPUs of all workers of a RayJob, or of the one pod that trains."""
    if run["kind"] == "Job":
        (pod,) = pods([run])
        return pod.gpus
    (group,) = run["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    return group["replicas"] * int(limits["nvidia.com/gpu"])


def experiment_of(objects: list[Object], run: Object, folder: Path) -> RunConfig:
    """The configuration that a run's pods mount. Raises RestrainError where it is wrong."""
    path = folder / f"{run['metadata']['name']}.yaml"
    path.write_text(_mounted_text(objects, run))
    return load_run_config(path)


def _mounted_text(objects: list[Object], run: Object) -> str:
    volumes = next(pod for pod in pods([run]) if pod.role in ("", "head")).spec["volumes"]
    (name,) = [each["configMap"]["name"] for each in volumes if "configMap" in each]
    (config,) = [each for each in of_kind(objects, "ConfigMap") if each["metadata"]["name"] == name]
    return config["data"]["experiment.yaml"]


def steps_agree(objects: list[Object]) -> Iterator[str]:
    """What one step writes is what the next one reads: model, reference, lengths, the run's folder.

    There is an offline pass exactly where the experiment names the file that it writes.
    """
    words = {_step(each): _words(each) for each in of_kind(objects, "Job")}
    for each in runs(objects):
        document = yaml.safe_load(_mounted_text(objects, each))
        flags, run = document["openrlhf"], document["run_dir"]
        model, prompts = flags["actor.model_name_or_path"], flags["data.prompt_dataset"]
        if _step(each) == "test-time":
            found = _words(each) if each["kind"] == "Job" else shlex.split(each["spec"]["entrypoint"])
            words["test-time"] = [part for word in found for part in word.split("=", 1)]
            expected = {"test-time": {"--model", model, "--prompts", prompts, "--out", run}}
            # In an overlay as it is, what is fetched is what training reads.
            if len(runs(objects)) == 1:
                yield from _fetched(words, prompts, set())
        else:
            length = f"--max-new-tokens={flags['rollout.max_new_tokens']}"
            expected = {
                **({} if model.startswith("/") else {"prefetch": {model}}),
                **_offline_words(document),
                "evaluation": {f"--model={run}/model", f"--out={run}/evaluation", length, _template(flags)},
                "regrade": {f"{run}/evaluation"},
            }
            yield from _fetched(words, prompts, {word for word in words["evaluation"] if "benchmark" in word})
            if ("reference" in words) is not ("reference" in document):
                yield f"{each['metadata']['name']}: an offline pass that nothing reads, or none where one is read"
        for step, wanted in expected.items():
            if missing := wanted - set(words.get(step, [])):
                yield f"{step}: does not fit the experiment of {each['metadata']['name']}: lacks {sorted(missing)}"


def _template(flags: dict[str, Any]) -> str:
    given = "chat" if flags.get("data.apply_chat_template") else flags.get("data.input_template", "plain")
    return f"--template={given}"


def _fetched(words: dict[str, list[str]], prompts: str, evaluation: set[str]) -> Iterator[str]:
    """The prompts are those of the `data` step, where there is one; benchmarks are put where the evaluation looks."""
    command, *rest = words.get("data", ["none"])
    options = dict(word.removeprefix("--").split("=", 1) for word in rest if "=" in word)
    made = {
        "none": prompts,
        "prepare": options.get("supervised") or options.get("out"),
        "benchmarks": f"{options.get('out')}/{rest[0]}.jsonl" if rest else "",
    }
    if made[command] != prompts:
        yield f"data: makes {made[command]}, the experiment reads {prompts}"
    if evaluation:
        _, names, folder = words["benchmarks"]
        if evaluation != {f"--benchmarks={names}", folder.replace("--out", "--benchmark-dir")}:
            yield f"benchmarks: {names} in {folder} are not the evaluation's {sorted(evaluation)}"


def _step(each: Object) -> str:
    return each["metadata"]["labels"]["app.kubernetes.io/component"]


def _offline_words(document: dict[str, Any]) -> dict[str, set[str]]:
    """The pass is the run's reference itself, or what `.first-K` of it is cut from; its name says how many it draws.

    What its parts are called is not told here: tests/commands/k8s/test_offline_pass.py runs the steps.
    """
    if "reference" not in document:
        return {}
    flags, reference = document["openrlhf"], PurePosixPath(document["reference"])
    kept = document.get("reference_n", flags["rollout.n_samples_per_prompt"])
    stem, _, first = reference.stem.partition(".first-")
    whole, drawn = f"{reference.with_name(stem)}.jsonl", int(stem.rpartition(".n")[2])
    cut = {"subset-reference": {f"--out={reference}", f"--n={kept}", whole}} if first else {}
    assert (int(first) if first else drawn) == kept, f"{reference} has not the {kept} rollouts that the run reads"
    return {
        "reference": {
            f"--model={flags['actor.model_name_or_path']}",
            f"--prompts={flags['data.prompt_dataset']}",
            f"--out={whole}",
            f"--n={drawn}",
            f"--max-new-tokens={flags['rollout.max_new_tokens']}",
            f"--max-len={flags['data.max_len']}",
        },
        "merge-reference": {f"--out={whole}"},
        **cut,
    }


def _words(job: Object) -> list[str]:
    return job["spec"]["template"]["spec"]["containers"][0].get("args", [])


def experiments_fit(objects: list[Object], folder: Path) -> Iterator[str]:
    """OpenRLHF's parser takes the flags; nodes x GPUs are the layout's; a preempted run resumes."""
    claims = {each["metadata"]["name"]: each for each in of_kind(objects, "PersistentVolumeClaim")}
    shared = [name for name, claim in claims.items() if claim["spec"]["accessModes"] == ["ReadWriteMany"]]
    for each in runs(objects):
        name = f"{each['kind']}/{each['metadata']['name']}"
        try:
            config = experiment_of(objects, each, folder)
            flags = vars(parse(to_arguments(host_flags(config))))
        except RestrainError as error:
            yield f"{name}: {error}"
            continue
        if GpuLayout.of(flags).needed != worker_gpus(each):
            yield f"{name}: the layout needs {GpuLayout.of(flags).needed} GPUs, its workers have {worker_gpus(each)}"
        if flags["ckpt.save_steps"] <= 0 or not flags["ckpt.load_enable"]:
            yield f"{name}: a preempted run starts from nothing"
        for pod in pods([each]):
            # One pod alone may have a volume of its node.
            kept = shared if pod.role else list(claims)
            if pod.role != "submitter" and not _writes_to(pod.spec, flags["ckpt.path"], kept):
                yield f"{pod.name}: {flags['ckpt.path']} is not on a volume that its cluster shares"


def _writes_to(spec: dict, path: str, claims: list[str]) -> bool:
    volumes = {each["name"]: each.get("persistentVolumeClaim", {}).get("claimName") for each in spec["volumes"]}
    return any(
        path.startswith(mount["mountPath"] + "/") and volumes[mount["name"]] in claims and not mount.get("readOnly")
        for mount in spec["containers"][0]["volumeMounts"]
        if mount["name"] in volumes
    )
