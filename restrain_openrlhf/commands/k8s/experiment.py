"""One configuration as the cluster runs it: paths on its volumes, its layout, and a name that Kubernetes accepts."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from restrain_openrlhf.commands.k8s.shared_pass import SharedPass
from restrain_openrlhf.config.checks import refuse_settings, refuse_unattended
from restrain_openrlhf.config.host_flags import flags_of
from restrain_openrlhf.config.memory import GIB
from restrain_openrlhf.config.nodes import LONGEST_PREFIX, Layout, NodeShape, plan, run_name
from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import build
from restrain_openrlhf.records.folder import VOTES_BEFORE, adapts_at_test_time

WORK = PurePosixPath("/mnt/work")


class Job(StrEnum):
    """What a configuration is rendered for."""

    TRAIN = "train"
    TEST_TIME = "test-time"


@dataclass(frozen=True)
class Experiment:
    """What the manifests are made from; `document` is the configuration file in the pods.

    `offline` is the offline pass that is made for it: None where it reads none, or one that is on a volume already.
    """

    name: str
    job: Job
    document: dict[str, Any]
    flags: dict[str, Any]
    layout: Layout
    shards: int
    offline: SharedPass | None
    # None: as the base manifests have it.
    deadline_days: float | None = None

    @property
    def run_dir(self) -> str:
        """The run's folder on the work volume."""
        return str(self.document["run_dir"])

    @property
    def model(self) -> str:
        """The base model: a hub id, or a folder on a volume."""
        return str(self.flags["actor.model_name_or_path"])

    @property
    def text(self) -> str:
        """The configuration file."""
        return yaml.safe_dump(self.document, sort_keys=False, allow_unicode=True, width=120)


def load_experiment(
    path: Path,
    overrides: dict[str, object],
    shape: NodeShape,
    *,
    job: Job | None = None,
    shards: int = 8,
    rollouts: int | None = None,
) -> Experiment:
    """Read a configuration as `restrain train` would, and move its paths to the cluster's volumes.

    `job` is what it is for, as the configuration tells if None. `rollouts` is the offline pass's number per prompt.
    Raises ConfigError for a wrong configuration, another job than it is for, a checkpoint that would never be written
    or resumed, or a layout that does not fit the overlay's nodes or their GPUs.
    """
    config = load_run_config(path, overrides)
    chosen = _job(config, job)
    document = _document(config)
    flags = flags_of(config)
    refuse_settings(config, flags, shape.gpu_memory * GIB if shape.gpu_memory else None)
    flags |= {name: document["openrlhf"][name] for name in document["openrlhf"] if name in PATH_FLAGS}
    refuse_unattended(flags, "into the secret 'wandb' (docs/operations/kubernetes.md)")
    offline = _offline(config, flags, rollouts, shards) if chosen is Job.TRAIN else None
    document |= {"reference": str(offline.reference)} if offline else {}
    return Experiment(
        _name(document, chosen), chosen, document, flags, plan(flags, shape), shards, offline, config.deadline_days
    )


def _job(config: RunConfig, asked: Job | None) -> Job:
    adapts = adapts_at_test_time(config)
    if adapts and asked is Job.TRAIN:
        raise ConfigError(
            f"--job train: the configuration is for test-time RL: its reference is the {VOTES_BEFORE} of the run. "
            "Leave --job out, or name the reference of a training."
        )
    return asked or (Job.TEST_TIME if adapts else Job.TRAIN)


def _offline(config: RunConfig, flags: dict[str, Any], rollouts: int | None, shards: int) -> SharedPass | None:
    """The pass to be made: none for a method that reads none, and none for a file that is on a volume already."""
    if config.reference is None or not build(config.method).needs_reference or _on_mount(config.reference):
        return None
    kept = config.reference_n or int(flags["rollout.n_samples_per_prompt"])
    return SharedPass.of(flags, config.engine, kept, rollouts or max(config.pass_n or kept, kept), shards)


def _name(document: dict[str, Any], job: Job) -> str:
    """From the run's folder below `runs`, of which each experiment has its own."""
    folder = PurePosixPath(document["run_dir"])
    root = next((root for root in (WORK / "runs", WORK) if root in folder.parents), PurePosixPath("/mnt"))
    text = str(folder.relative_to(root))
    if job is Job.TRAIN:
        return run_name(text)
    # The job's own name begins with these words, so a folder that has them gives the rest. Any other folder gives what
    # is no label, so that its name ends in a hash and is not the first one's.
    return run_name(text.removeprefix(LONGEST_PREFIX) if text.startswith(LONGEST_PREFIX) else f"{text}/")


PATH_FLAGS = ("actor.model_name_or_path", "data.prompt_dataset")


def _document(config: RunConfig) -> dict[str, Any]:
    openrlhf = dict(config.openrlhf)
    if prompts := openrlhf.get("data.prompt_dataset"):
        openrlhf["data.prompt_dataset"] = on_volume(Path(prompts))
    model = str(openrlhf.get("actor.model_name_or_path", ""))
    # A folder, existing or not: a hub id has at most one slash.
    if Path(model).is_dir() or model.count("/") > 1:
        openrlhf["actor.model_name_or_path"] = on_volume(Path(model))
    # Presets of one folder share a `reference:`; a method that reads none must not wait for the file in its pods.
    read = config.reference if build(config.method).needs_reference else None
    reference = {"reference": on_volume(read)} if read else {}
    # `restrain train` sets `metrics` itself.
    others = config.model_copy(update={"reference": None, "metrics": None}).written()
    return {"run_dir": on_volume(config.run_dir), **reference, **others, "openrlhf": openrlhf}


def on_volume(path: Path) -> str:
    """A local path as the pods see it: unchanged if it is on a volume, else below the work volume.

    Raises ConfigError for a path outside the working folder.
    """
    if _on_mount(path):
        return str(path)
    here = Path.cwd()
    inside = path.absolute()
    if not inside.is_relative_to(here):
        raise ConfigError(f"{path}: is outside the working folder. Give its path on the cluster, such as {WORK}/data.")
    return str(WORK / inside.relative_to(here))


def _on_mount(path: Path) -> bool:
    return path.is_relative_to("/mnt")
