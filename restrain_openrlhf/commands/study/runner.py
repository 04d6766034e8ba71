"""Runs a study: samples missing references, then trains the runs that are not complete, several at a time."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.commands.study.plan import StudyRun
from restrain_openrlhf.config.command_line import override_words
from restrain_openrlhf.config.gpu_layout import GpuLayout
from restrain_openrlhf.config.host_flags import flags_of
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.hook.wait_for_gpus import cluster_gpus, refuse_shortage
from restrain_openrlhf.machine.processes import MODULE, ending_with_us, start_module
from restrain_openrlhf.method import build
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.metrics import read_steps
from restrain_openrlhf.reference.reference_pass import sample_reference
from restrain_openrlhf.training.train import refuse_another_run

POLL_SECONDS = 1.0
PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class StudyListener:
    """Callbacks of a study: a reference is being sampled, a run made a step, a run ended."""

    reference: Callable[[Path], None] = lambda _path: None
    step: Callable[[StudyRun, int], None] = lambda _run, _step: None
    ended: Callable[[StudyRun, bool], None] = lambda _run, _succeeded: None


def runs_at_a_time(runs: Sequence[StudyRun]) -> int:
    """As many of the largest run as the cluster that RAY_ADDRESS names has GPUs for; 1 where each run starts its own.

    Raises ConfigError where the cluster holds not even one.
    """
    if not os.environ.get("RAY_ADDRESS"):
        return 1
    needed = max(GpuLayout.of(flags_of(run.config)).needed for run in runs)
    found = cluster_gpus()
    refuse_shortage(needed, found)
    return int(found // needed)


def run_study(runs: Sequence[StudyRun], jobs: int, listener: StudyListener) -> None:
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


def make_reference(run: StudyRun, listener: StudyListener) -> None:
    """Sample the run's reference file if the method needs it and it is missing."""
    reference = run.config.reference
    if reference is not None and not reference.exists() and build(run.config.method).needs_reference:
        listener.reference(reference)
        sample_reference(run.config, reference)


def _train_all(waiting: Sequence[StudyRun], jobs: int, listener: StudyListener) -> Iterator[StudyRun]:
    """Trains them all; yields those that failed. What ends the study ends its runs too, and their checkpoints stay."""
    queue, running = list(waiting), list[tuple[StudyRun, subprocess.Popen[bytes]]]()
    told: dict[str, int] = {}
    with ending_with_us(PATIENCE_SECONDS) as processes:
        while queue or running:
            while queue and len(running) < jobs:
                run = queue.pop(0)
                running.append((run, _start(run)))
                processes.append(running[-1][1])
            time.sleep(POLL_SECONDS)
            for run, process in list(running):
                rows = read_steps(RunFolder(run.config.run_dir).metrics)
                if rows and rows[-1].step > told.get(run.label, 0):
                    told[run.label] = rows[-1].step
                    listener.step(run, rows[-1].step)
                if process.poll() is not None:
                    running.remove((run, process))
                    listener.ended(run, process.returncode == 0)
                    if process.returncode != 0:
                        yield run


def _start(run: StudyRun) -> "subprocess.Popen[bytes]":
    return start_module(MODULE, ["train", run.source, *override_words(run.overrides)], _log(run))


def _log(run: StudyRun) -> Path:
    return run.config.run_dir.parent / f"{run.config.run_dir.name}.log"
