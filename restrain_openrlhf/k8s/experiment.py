"""One configuration as the cluster runs it: paths on its volumes, its layout, and a name that Kubernetes accepts."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.hook.host_flags import host_flags, parse, to_arguments
from restrain_openrlhf.hook.recorded_flags import recorded_parser
from restrain_openrlhf.k8s.layout import Layout, plan
from restrain_openrlhf.k8s.overlay import NodeShape
from restrain_openrlhf.memory.fit import refuse_what_cannot_fit
from restrain_openrlhf.memory.lines import GIB
from restrain_openrlhf.method import build

WORK = PurePosixPath("/mnt/work")
# KubeRay refuses longer names of RayJobs: it appends suffixes for the cluster and its services.
LONGEST_NAME = 47
# OpenRLHF turns W&B on by a key alone; the real one comes from the secret, as WANDB_API_KEY.
DUMMY_KEY = "dummy"


@dataclass(frozen=True)
class Experiment:
    """What the manifests are made from; `document` is the configuration file in the pods."""

    name: str
    document: dict[str, Any]
    flags: dict[str, Any]
    layout: Layout
    # None: as the base manifests have it.
    deadline_days: float | None = None

    @property
    def run_dir(self) -> str:
        """The run's folder on the work volume."""
        return str(self.document["run_dir"])

    @property
    def reference(self) -> str | None:
        """The offline pass's file on the work volume; None where the method reads none, or it is not named."""
        return self.document.get("reference")

    @property
    def model(self) -> str:
        """The base model: a hub id, or a folder on a volume."""
        return str(self.flags["actor.model_name_or_path"])

    @property
    def text(self) -> str:
        """The configuration file."""
        return yaml.safe_dump(self.document, sort_keys=False, allow_unicode=True, width=120)


def load_experiment(path: Path, overrides: dict[str, object], shape: NodeShape) -> Experiment:
    """Read a configuration as `restrain train` would, and move its paths to the cluster's volumes.

    Raises ConfigError for a wrong configuration, a checkpoint that would never be written or resumed, or a layout that
    does not fit the overlay's nodes or their GPUs.
    """
    config = load_run_config(path, overrides)
    document = _document(config)
    # Rendering needs no OpenRLHF: the defaults of its flags are on record.
    parser = recorded_parser()
    flags = vars(parse(to_arguments(host_flags(config), parser), parser))
    refuse_what_cannot_fit(flags, shape.gpu_memory * GIB if shape.gpu_memory else None)
    flags |= {name: document["openrlhf"][name] for name in document["openrlhf"] if name in PATH_FLAGS}
    _refuse_lost_work(flags)
    _refuse_secrets(flags)
    return Experiment(run_name(config.run_dir.name), document, flags, plan(flags, shape), config.deadline_days)


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
    if path.is_absolute() and path.is_relative_to("/mnt"):
        return str(path)
    here = Path.cwd()
    inside = path.absolute()
    if not inside.is_relative_to(here):
        raise ConfigError(f"{path}: is outside the working folder. Give its path on the cluster, such as {WORK}/data.")
    return str(WORK / inside.relative_to(here))


def run_name(text: str) -> str:
    """A DNS-1035 label of at most 40 characters, so that a prefix or suffix fits; a longer text ends in a hash."""
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "run"
    slug = slug if slug[0].isalpha() else f"run-{slug}"
    longest = LONGEST_NAME - len("test-time-")
    if len(slug) <= longest:
        return slug
    digest = hashlib.sha256(text.encode()).hexdigest()[:6]
    return f"{slug[: longest - 7].rstrip('-')}-{digest}"


def _refuse_lost_work(flags: dict[str, Any]) -> None:
    if int(flags["ckpt.save_steps"]) <= 0 or not flags["ckpt.load_enable"]:
        raise ConfigError(
            "ckpt.save_steps must be above 0 and ckpt.load_enable true: a preempted run would start again from nothing."
        )


def _refuse_secrets(flags: dict[str, Any]) -> None:
    if flags["logger.wandb.key"] not in (None, "", DUMMY_KEY):
        raise ConfigError(
            f"logger.wandb.key would be readable in the cluster. Set it to '{DUMMY_KEY}' and put the key into the "
            "secret 'wandb' (docs/operations/kubernetes.md)."
        )
