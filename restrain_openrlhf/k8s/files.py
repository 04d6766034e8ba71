"""Writes manifests into a folder: a numbered file for each step, and `run.sh`, which applies them and waits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.k8s.naming import Manifest
from restrain_openrlhf.k8s.patches import PASS
from restrain_openrlhf.k8s.stages import Stage
from restrain_openrlhf.shipped import KUBERNETES

APPLY = "kubectl apply --server-side -f"
# What to wait for: a batch Job's condition, and KubeRay's word for a driver that ended well.
ENDS = {"Job": "condition=complete", "RayJob": "jsonpath='{.status.jobStatus}'=SUCCEEDED"}


@dataclass(frozen=True)
class Step:
    """A file, and the job in it that the next step waits for; `job` is None where there is none."""

    stage: Stage
    file: str
    job: Manifest | None

    @property
    def resource(self) -> str:
        """The job as kubectl names it."""
        assert self.job is not None, "asked of a step with a job"
        return f"{self.job['kind'].lower()}/{self.job['metadata']['name']}"

    def command(self, folder: Path) -> str:
        """Applies the file, and waits as long as its job may take."""
        apply = f"{APPLY} {folder / self.file}"
        if self.job is None:
            return f"{apply}   # once, by the cluster's administrator" if self.stage is Stage.ADMIN else apply
        longest = f"--timeout={self.job['spec']['activeDeadlineSeconds']}s"
        space, end = self.job["metadata"]["namespace"], ENDS[self.job["kind"]]
        return f"{apply} && kubectl -n {space} wait --for={end} {longest} {self.resource}"

    def lines(self) -> list[str]:
        """What `run.sh` does."""
        if self.job is None:
            return [f"{'admin' if self.stage is Stage.ADMIN else 'shared'} {self.file}"]
        key = self.job["metadata"].get("labels", {}).get(PASS)
        return [*([f"pass {key} {self.resource}"] if key else []), f"step {self.file} {self.resource}"]


def write(manifests: Mapping[Stage, Sequence[Manifest]], folder: Path) -> list[str]:
    """Write the files and `run.sh` into a new folder; returns a command for each step.

    Raises ConfigError where the folder holds something.
    """
    _make(folder)
    steps = [_step(number, stage, objects) for number, (stage, objects) in enumerate(manifests.items(), start=1)]
    for step, objects in zip(steps, manifests.values(), strict=True):
        (folder / step.file).write_text(text_of(objects), encoding="utf-8")
    script = folder / "run.sh"
    namespace = next(name for objects in manifests.values() for name in map(_namespace, objects) if name)
    script.write_text(script_of(steps, namespace), encoding="utf-8")
    script.chmod(0o755)
    return [step.command(folder) for step in steps]


def script_of(steps: Sequence[Step], namespace: str) -> str:
    """`run.sh` of these steps: the tree's functions, and a call for each step."""
    functions = (KUBERNETES / "run.sh").read_text(encoding="utf-8")
    calls = [line for step in steps for line in step.lines()]
    return "\n".join([functions + f"namespace={namespace}", *calls, 'say "Everything is complete."', ""])


def text_of(objects: Sequence[Manifest]) -> str:
    """The objects as YAML; a job comes last, after the policies and configuration that its pods need."""
    return yaml.safe_dump_all(sorted(objects, key=lambda each: each["kind"] in ENDS), sort_keys=False)


def _step(number: int, stage: Stage, objects: Sequence[Manifest]) -> Step:
    jobs = [each for each in objects if each["kind"] in ENDS]
    return Step(stage, f"{number:02}-{stage}.yaml", jobs[0] if jobs else None)


def _namespace(each: Manifest) -> str | None:
    own = each["metadata"]
    name: str | None = own["name"] if each["kind"] == "Namespace" else own.get("namespace")
    return name


def _make(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            f"--out {folder}: is not empty. Name a new folder, so that no step of another run is applied."
        )
    folder.mkdir(parents=True, exist_ok=True)
