"""Writes what was rendered into a folder: a file per step, and `run.sh` to apply them."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from restrain_openrlhf.commands.k8s.patches import PASS, QUEUE
from restrain_openrlhf.commands.k8s.stages import EXPERIMENT, JOBS, SHARED, Manifest, Stage, mappings
from restrain_openrlhf.data.outputs import write_whole
from restrain_openrlhf.errors import ConfigError

# The functions of run.sh. Calls that depend on what was rendered are written after them.
SCRIPT = Path(__file__).with_name("run.sh")
# Kinds that an operator adds to Kubernetes, by their names in `kubectl get`.
OPERATORS = {"RayJob": "rayjobs", "PodMonitor": "podmonitors"}
# The annotation with the digest of a step, by which run.sh sees whether the step has changed.
DIGEST = "restrain-digest"
PLATFORM = "configmap/runtime-environment"


def write(manifests: Mapping[Stage, Sequence[Manifest]], folder: Path) -> None:
    """Write a numbered file for each step into a new folder, and `run.sh`, which applies each and waits for it.

    Raises ConfigError if the folder is not empty.
    """
    _make(folder)
    files = _files(manifests)
    calls = [call for stage, file in files.items() for call in _calls(stage, file, manifests)]
    _write_files(manifests, folder)
    every = [each for objects in manifests.values() for each in objects]
    text = "\n".join([*_settings(every), "ready", *calls, 'say "Everything is complete."', ""])
    script = folder / "run.sh"
    write_whole(script, SCRIPT.read_text(encoding="utf-8") + text)
    script.chmod(0o755)


def _make(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            f"--out {folder}: is not empty. Name a new folder, so that no step of another run is applied."
        )
    folder.mkdir(parents=True, exist_ok=True)


def _files(manifests: Mapping[Stage, Sequence[Manifest]]) -> dict[Stage, str]:
    return {stage: f"{number:02}-{stage}.yaml" for number, stage in enumerate(manifests, start=1)}


def _write_files(manifests: Mapping[Stage, Sequence[Manifest]], folder: Path) -> None:
    for stage, file in _files(manifests).items():
        write_whole(folder / file, _text_of(manifests[stage]))


def _settings(every: Sequence[Manifest]) -> list[str]:
    """Shell variables with the namespace, the experiment and the queue of the objects; empty if no object has one."""
    labels = [each["metadata"].get("labels", {}) for each in every]
    found = {
        "namespace": (each["metadata"].get("namespace") for each in every),
        "experiment": (each.get(EXPERIMENT) for each in labels),
        "queue": (each.get(QUEUE) for each in labels),
    }
    return [f"{name}={next(filter(None, values), '')}" for name, values in found.items()]


def _needs(manifests: Mapping[Stage, Sequence[Manifest]]) -> list[str]:
    """Calls by which `run.sh` checks, before anything is downloaded, that operators' kinds and the queue exist."""
    every = [each for objects in manifests.values() for each in objects]
    kinds = {each["kind"] for each in every}
    queues = sorted({each["metadata"].get("labels", {}).get(QUEUE, "") for each in every} - {""})
    wanted = [*(name for kind, name in OPERATORS.items() if kind in kinds), *(f"localqueues/{each}" for each in queues)]
    return [f"needs {each}" for each in wanted]


def _calls(stage: Stage, file: str, manifests: Mapping[Stage, Sequence[Manifest]]) -> list[str]:
    """The calls of a step in `run.sh`. Most are `step`, which applies the file and waits for its job."""
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
    """The digest of a step, and the object that is annotated with it: the step's job, or one of the shared objects.

    A job's digest leaves out its images and resources, which do not change what it does. The digest of shared objects
    covers all of their content.
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
    """The objects as YAML. A job comes last, after the policies and configuration that its pods need."""
    return yaml.safe_dump_all(sorted(objects, key=lambda each: each["kind"] in JOBS), sort_keys=False)
