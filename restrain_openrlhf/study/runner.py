"""Runs a study: samples missing references, then trains the runs that are not complete, several at a time."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from restrain_openrlhf.errors import RunError
from restrain_openrlhf.hook.host_flags import host_flags, parse, to_arguments
from restrain_openrlhf.hook.sizes import cluster_gpus, gpus_needed, refuse_shortage
from restrain_openrlhf.method import build
from restrain_openrlhf.run.folder import RunFolder
from restrain_openrlhf.run.metrics import read_steps
from restrain_openrlhf.run.processes import MODULE, ending_with_us, python_environment, python_module
from restrain_openrlhf.run.reference_pass import sample_reference
from restrain_openrlhf.run.train import refuse_another_run
from restrain_openrlhf.study.plan import StudyRun

POLL_SECONDS = 1.0
PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class Listener:
    """Callbacks of a study: a reference is being sampled, a run made a step, a run ended."""

    reference: Callable[[Path], None] = lambda _path: None
    step: Callable[[StudyRun, int], None] = lambda _run, _step: None
    ended: Callable[[StudyRun, bool], None] = lambda _run, _succeeded: None


@dataclass
class _Running:
    run: StudyRun
    process: "subprocess.Popen[bytes]"
    step: int = field(default=0)


def runs_at_a_time(runs: Sequence[StudyRun]) -> int:
    """As many of the largest run as the cluster that RAY_ADDRESS names has GPUs for; 1 where each run starts its own.

    Raises ConfigError where the cluster holds not even one.
    """
    if not os.environ.get("RAY_ADDRESS"):
        return 1
    needed = max(gpus_needed(vars(parse(to_arguments(host_flags(run.config))))) for run in runs)
    found = cluster_gpus()
    refuse_shortage(needed, found)
    return int(found // needed)


def run_study(runs: Sequence[StudyRun], jobs: int, listener: Listener) -> None:
    """Train the runs that are not complete, `jobs` at a time. A run that fails does not stop the others.

    Raises RunError at the end, with the log of every run that failed; the same command resumes them. Raises it before
    anything trains where a folder, of a complete run too, holds one of another configuration or other content.
    """
    for run in runs:
        make_reference(run, listener)
    for run in runs:
        refuse_another_run(run.config)
    waiting = [run for run in runs if not RunFolder(run.config.run_dir).completed.exists()]
    failed = list(_train_all(waiting, jobs, listener))
    if failed:
        logs = "\n".join(str(_log(run)) for run in failed)
        raise RunError(f"{len(failed)} of {len(runs)} runs failed. Fix the errors in these logs, then rerun:\n{logs}")


def make_reference(run: StudyRun, listener: Listener) -> None:
    """Sample the run's reference file if the method needs it and it is missing."""
    reference = run.config.reference
    if reference is None or reference.exists() or not build(run.config.method).needs_reference:
        return
    listener.reference(reference)
    sample_reference(run.config, reference)


def _train_all(waiting: Sequence[StudyRun], jobs: int, listener: Listener) -> Iterator[StudyRun]:
    """Trains them all; yields those that failed. What ends the study ends its runs too, and their checkpoints stay."""
    queue, running = list(waiting), list[_Running]()
    with ending_with_us(PATIENCE_SECONDS) as processes:
        while queue or running:
            while queue and len(running) < jobs:
                running.append(_start(queue.pop(0)))
                processes.append(running[-1].process)
            time.sleep(POLL_SECONDS)
            for job in list(running):
                _report(job, listener)
                if job.process.poll() is not None:
                    running.remove(job)
                    succeeded = job.process.returncode == 0
                    listener.ended(job.run, succeeded)
                    if not succeeded:
                        yield job.run


def _start(run: StudyRun) -> _Running:
    sets = [word for key, value in run.overrides.items() for word in ("--set", f"{key}={_as_yaml(value)}")]
    log = _log(run)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        process = subprocess.Popen(
            python_module(MODULE, ["train", str(run.source), *sets]),
            stdout=file,
            stderr=subprocess.STDOUT,
            env=python_environment(),
        )
    return _Running(run, process)


def _as_yaml(value: object) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=float("inf")).removesuffix("...\n").strip()


def _report(job: _Running, listener: Listener) -> None:
    step = max((row.step for row in read_steps(RunFolder(job.run.config.run_dir).metrics)), default=0)
    if step > job.step:
        job.step = step
        listener.step(job.run, step)


def _log(run: StudyRun) -> Path:
    return run.config.run_dir.parent / f"{run.config.run_dir.name}.log"
