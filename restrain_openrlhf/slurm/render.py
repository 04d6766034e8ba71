"""Writes a Slurm job into a folder: the script, what each node does of the offline pass, and the configuration."""

from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.slurm.job import SlurmJob

SCRIPT, PASS, CONFIGURATION, LOGS = "job.sh", "pass.sh", "experiment.yaml", "logs"


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
    _write(out / SCRIPT, "job.sh.j2", _values(job, out))
    if job.offline and job.layout.nodes > 1:
        _write(out / PASS, "pass.sh.j2", _values(job, out))
    return out / SCRIPT


def _values(job: SlurmJob, out: Path) -> dict[str, Any]:
    gpus = job.layout.gpus
    return {
        "job": job,
        "allocation": job.allocation,
        "nodes": job.layout.nodes,
        "gpus": gpus,
        "gpus_per_node": f"{job.allocation.gpu_type}:{gpus}" if job.allocation.gpu_type else str(gpus),
        "inside": job.inside,
        # A container must see what the job reads and writes: its own folder, and the one that paths begin at.
        "binds": [f"{out}:{out}", f"{job.folder}:{job.folder}", *job.inside.binds],
        "offline": job.offline,
        "config": out / CONFIGURATION,
        "node_pass": out / PASS,
        "logs": out / LOGS,
        "script": out / SCRIPT,
    }


def _write(path: Path, template: str, values: dict[str, Any]) -> None:
    environment = Environment(
        loader=PackageLoader("restrain_openrlhf.slurm", "."),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # Bash has ${#array[@]}.
        comment_start_string="<#",
        comment_end_string="#>",
    )
    environment.filters["quoted"] = _quoted
    path.write_text(environment.get_template(template).render(values), encoding="utf-8")
    path.chmod(0o755)


def _quoted(value: object) -> str:
    """One word for bash. Quotes even where none are needed: shellcheck takes a bare comma in an array for a mistake."""
    return "'" + str(value).replace("'", "'\\''") + "'"
