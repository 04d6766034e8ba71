"""Writes manifests into a folder: a numbered file for each step, and `run.sh`, which applies them and waits."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from restrain_openrlhf.commands.k8s.patches import BENCHMARKS_IN_POD, PASS
from restrain_openrlhf.commands.k8s.stages import Manifest, Stage
from restrain_openrlhf.config.shipped import KUBERNETES
from restrain_openrlhf.errors import ConfigError

APPLY = "kubectl apply --server-side -f"
# What to wait for: a batch Job's condition, and KubeRay's word for a driver that ended well.
ENDS = {"Job": "condition=complete", "RayJob": "jsonpath='{.status.jobStatus}'=SUCCEEDED"}


def write(manifests: Mapping[Stage, Sequence[Manifest]], folder: Path) -> list[str]:
    """Write the files and `run.sh` into a new folder; returns a command for each step.

    Raises ConfigError where the folder holds something.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            f"--out {folder}: is not empty. Name a new folder, so that no step of another run is applied."
        )
    folder.mkdir(parents=True, exist_ok=True)
    calls, commands = [], []
    for number, (stage, objects) in enumerate(manifests.items(), start=1):
        file = folder / f"{number:02}-{stage}.yaml"
        file.write_text(text_of(objects), encoding="utf-8")
        job = next((each for each in objects if each["kind"] in ENDS), None)
        calls += _calls(stage, file.name, job)
        commands.append(_command(stage, file, job))
    namespace = next(name for objects in manifests.values() for name in map(_namespace, objects) if name)
    functions = (KUBERNETES / "run.sh").read_text(encoding="utf-8") + f"namespace={namespace}"
    script = folder / "run.sh"
    script.write_text("\n".join([functions, *calls, 'say "Everything is complete."', ""]), encoding="utf-8")
    script.chmod(0o755)
    return commands


def _resource(job: Manifest) -> str:
    return f"{job['kind'].lower()}/{job['metadata']['name']}"


def _command(stage: Stage, file: Path, job: Manifest | None) -> str:
    """Applies the file, and waits as long as its job may take."""
    apply = f"{APPLY} {file}"
    if job is None:
        return f"{apply}   # once, by the cluster's administrator" if stage is Stage.ADMIN else apply
    longest = f"--timeout={job['spec']['activeDeadlineSeconds']}s"
    space, end = job["metadata"]["namespace"], ENDS[job["kind"]]
    return f"{apply} && kubectl -n {space} wait --for={end} {longest} {_resource(job)}"


def _calls(stage: Stage, file: str, job: Manifest | None) -> list[str]:
    """What `run.sh` does: `step` applies the file and waits for its job."""
    if job is None:
        return [f"{'admin' if stage is Stage.ADMIN else 'shared'} {file}"]
    key = job["metadata"].get("labels", {}).get(PASS)
    return [*([f"pass {key} {_resource(job)}"] if key else []), f"step {file} {_resource(job)}"]


def _namespace(each: Manifest) -> str | None:
    own = each["metadata"]
    name: str | None = own["name"] if each["kind"] == "Namespace" else own.get("namespace")
    return name


def text_of(objects: Sequence[Manifest]) -> str:
    """The objects as YAML; a job comes last, after the policies and configuration that its pods need."""
    return yaml.safe_dump_all(sorted(objects, key=lambda each: each["kind"] in ENDS), sort_keys=False)


def copy_lines(objects: Iterable[Manifest]) -> Iterator[str]:
    """Commands that copy files through each bare pod among these: to the work volume and back, and the pod's end."""
    for metadata in (each["metadata"] for each in objects if each["kind"] == "Pod"):
        space, pod = metadata["namespace"], metadata["name"]
        yield f"kubectl -n {space} wait --for=condition=Ready --timeout=10m pod/{pod}"
        yield f"kubectl -n {space} exec {pod} -- mkdir -p {BENCHMARKS_IN_POD}"
        yield f"kubectl -n {space} cp FILE {pod}:/mnt/work/data/FILE"
        yield f"kubectl -n {space} cp {pod}:/mnt/work/runs/NAME NAME"
        yield f"kubectl -n {space} delete pod {pod}"
