"""One configuration as a Slurm job: its nodes and GPUs, the offline pass before it, and the folder it is written to."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from restrain_openrlhf.config.checks import refuse_settings, refuse_unattended
from restrain_openrlhf.config.host_flags import flags_of
from restrain_openrlhf.config.memory import GIB
from restrain_openrlhf.config.nodes import Layout, NodeShape, plan, run_name
from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import build
from restrain_openrlhf.records.folder import adapts_at_test_time
from restrain_openrlhf.reference.sampling_pass import Shard

# More nodes than Slurm has names for: the allocation itself says whether there are enough.
ANY_NUMBER = 100_000
# vLLM's and Ray's processes, and loading data, beside a process for each GPU.
CPUS_PER_GPU = 8
TIME = re.compile(r"(\d+-)?\d{1,2}(:\d{2}){0,2}|\d+(:\d{2})?")
SBATCH = re.compile(r"[a-z][a-z-]*(=[\w.,:@/+*%\[\]()&|-]+)?")
# What the script sets itself, or relies on.
OURS = (
    *("chdir", "cpus-per-task", "error", "gpus-per-node", "gres", "job-name", "mem", "nodes"),
    *("ntasks-per-node", "open-mode", "output", "requeue", "signal", "time"),
)
SCRIPT, PASS, CONFIGURATION, LOGS = "job.sh", "pass.sh", "experiment.yaml", "logs"


@dataclass(frozen=True)
class Runtime:
    """Where commands run: a virtual environment, a container image, or as the shell finds them (neither).

    `setup` is a shell file that is read first: modules, variables, secrets. `binds` are `FROM:TO` of a container.
    """

    venv: Path | None = None
    apptainer: str | None = None
    pyxis: str | None = None
    binds: Sequence[str] = ()
    setup: Path | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError for more than one place, and for binds of nothing."""
        given = [name for name in ("venv", "apptainer", "pyxis") if getattr(self, name)]
        if len(given) > 1:
            raise ConfigError(f"--{given[0]} and --{given[1]} are both given. Give the one that holds restrain.")
        if self.binds and not (self.apptainer or self.pyxis):
            raise ConfigError("--bind is for a container. Add --apptainer IMAGE or --pyxis IMAGE, or leave it out.")
        for path, option, needed in ((self.venv, "--venv", "bin/activate"), (self.setup, "--setup", "")):
            if path is not None and not (path / needed if needed else path).is_file():
                raise ConfigError(f"{option} {path}: {needed or 'no such file'} is not there. Check the path.")


@dataclass(frozen=True)
class Allocation:
    """What is asked of Slurm. `gpu_type` and `memory` (of a node) are as Slurm has them; `sbatch` other options.

    The job gets a signal `warning` seconds before its time ends, saves nothing more, and is queued again.
    """

    gpus_per_node: int
    time: str = "24:00:00"
    cpus_per_node: int | None = None
    memory: str = "0"
    gpu_type: str | None = None
    gpu_memory: int | None = None
    warning: int = 300
    sbatch: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises ConfigError for what Slurm would not take, or what the script sets itself."""
        if not TIME.fullmatch(self.time):
            raise ConfigError(f"--time {self.time!r}: is no time of Slurm's. Give 24:00:00 or 2-00:00:00.")
        if not re.fullmatch(r"\d+[KMGT]?", self.memory):
            raise ConfigError(f"--mem {self.memory!r}: give a size such as 480G, or 0 for all of a node.")
        if self.gpu_type is not None and not re.fullmatch(r"[\w.-]+", self.gpu_type):
            raise ConfigError(f"--gpu-type {self.gpu_type!r}: is no name of Slurm's. Give one such as h100.")
        for option in self.sbatch:
            name = option.partition("=")[0]
            if not SBATCH.fullmatch(option):
                raise ConfigError(f"--sbatch {option!r}: give KEY=VALUE, such as partition=gpu.")
            if name in OURS:
                raise ConfigError(f"--sbatch {option!r}: the script sets {name} itself. Use render's own options.")

    @property
    def shape(self) -> NodeShape:
        """A node."""
        cpus = self.cpus_per_node or CPUS_PER_GPU * self.gpus_per_node
        return NodeShape(gpus_per_node=self.gpus_per_node, max_nodes=ANY_NUMBER, cpus_per_node=cpus)


@dataclass(frozen=True)
class NodePasses:
    """The offline pass before training, a part for each engine: `gpus` of one, and how many engines all nodes have."""

    reference: Path
    gpus: int
    engines_per_node: int
    shards: int

    @property
    def parts(self) -> list[Path]:
        """The files of the shards."""
        return [Shard(index, self.shards).path(self.reference) for index in range(self.shards)]


@dataclass(frozen=True)
class SlurmJob:
    """What the script is made from; `document` is the configuration beside it, with absolute paths."""

    name: str
    document: Mapping[str, Any]
    layout: Layout
    offline: NodePasses | None
    allocation: Allocation
    runtime: Runtime
    folder: Path

    @property
    def cpus(self) -> int:
        """Of a node, as far as the job uses it."""
        shape = self.allocation.shape
        return self.allocation.cpus_per_node or max(shape.cpus_per_node * self.layout.gpus // shape.gpus_per_node, 8)


def load_job(path: Path, overrides: Mapping[str, object], allocation: Allocation, runtime: Runtime) -> SlurmJob:
    """Read a configuration as `restrain train` would on this machine, whose folders the nodes share.

    Raises ConfigError for a wrong configuration, one for test-time RL, a layout that does not fit the nodes, a secret
    in it, and checkpoints that would not be resumed.
    """
    config = load_run_config(path, overrides)
    _refuse_test_time(config)
    flags = flags_of(config)
    refuse_settings(config, flags, allocation.gpu_memory * GIB if allocation.gpu_memory else None)
    refuse_unattended(flags, "into WANDB_API_KEY, in the file of --setup (docs/operations/slurm.md)")
    layout = plan(flags, allocation.shape)
    name = run_name(f"{config.run_dir.parent.name}-{config.run_dir.name}")
    return SlurmJob(name, _document(config), layout, _offline(config, flags, layout), allocation, runtime, Path.cwd())


def _refuse_test_time(config: RunConfig) -> None:
    if adapts_at_test_time(config):
        raise ConfigError(
            "The configuration is for test-time RL, which `test-time adapt` starts with a model and problems of its "
            "own. Call it in a script of yours on one node; this command renders `restrain train`."
        )


def _document(config: RunConfig) -> dict[str, Any]:
    """The job is queued again with what it was rendered from, whatever becomes of the file and its presets."""
    whole = config.model_dump(mode="json", exclude={"metrics", "method", "openrlhf"}, exclude_defaults=True)
    return {**whole, "method": config.method.model_dump(mode="json"), "openrlhf": dict(config.openrlhf)}


def _offline(config: RunConfig, flags: Mapping[str, Any], layout: Layout) -> NodePasses | None:
    if config.reference is None or not build(config.method).needs_reference:
        return None
    gpus = int(flags["vllm.tensor_parallel_size"])
    engines = max(layout.gpus // gpus, 1)
    return NodePasses(config.reference, gpus, engines, engines * layout.nodes)


def render(job: SlurmJob, out: Path) -> Path:
    """Write it into a new folder; returns the script. Raises ConfigError where the folder holds something."""
    out = out.absolute()
    for path in (out, job.folder):
        if any(sign.isspace() for sign in str(path)):
            raise ConfigError(
                f"{path}: has a space in its name, which Slurm's options cannot have. Use another folder."
            )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out {out}: is not empty. Name a new folder: a queued job reads its files there.")
    (out / LOGS).mkdir(parents=True)
    text = yaml.safe_dump(dict(job.document), sort_keys=False, allow_unicode=True, width=120)
    (out / CONFIGURATION).write_text(text, encoding="utf-8")
    gpus, gpu_type = job.layout.gpus, job.allocation.gpu_type
    values = {
        "job": job,
        "allocation": job.allocation,
        "nodes": job.layout.nodes,
        "gpus": gpus,
        "gpus_per_node": f"{gpu_type}:{gpus}" if gpu_type else str(gpus),
        "runtime": job.runtime,
        # A container must see what the job reads and writes: its own folder, and the one that paths begin at.
        "binds": [f"{out}:{out}", f"{job.folder}:{job.folder}", *job.runtime.binds],
        "offline": job.offline,
        "config": out / CONFIGURATION,
        "node_pass": out / PASS,
        "logs": out / LOGS,
        "script": out / SCRIPT,
    }
    environment = Environment(
        loader=PackageLoader("restrain_openrlhf.commands.slurm", "."),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # Bash has ${#array[@]}.
        comment_start_string="<#",
        comment_end_string="#>",
    )
    environment.filters["quoted"] = _quoted
    for name in (SCRIPT, PASS) if job.offline and job.layout.nodes > 1 else (SCRIPT,):
        (out / name).write_text(environment.get_template(f"{name}.j2").render(values), encoding="utf-8")
        (out / name).chmod(0o755)
    return out / SCRIPT


def _quoted(value: object) -> str:
    """One word for bash. Quotes even where none are needed: shellcheck takes a bare comma in an array for a mistake."""
    return "'" + str(value).replace("'", "'\\''") + "'"
