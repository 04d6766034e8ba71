"""Runs a study: samples missing references, then trains the runs that are not complete, several at a time."""

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from restrain_openrlhf.commands.study.plan import StudyRun
from restrain_openrlhf.config.command_line import override_words
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.machine.processes import MODULE, ending_with_us, start_module
from restrain_openrlhf.method import build
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.reference.offline_pass import sample_reference
from restrain_openrlhf.training.train import refuse_another_run

POLL_SECONDS = 1.0
PATIENCE_SECONDS = 60
# Gets a sentence on what is going on.
Say = Callable[[str], None]


def run_study(runs: Sequence[StudyRun], jobs: int, say: Say, report: Callable[[], object]) -> None:
    """Train the runs that are not complete, `jobs` at a time. A run that fails does not stop the others.

    `report` is called after each run that succeeded. Raises RunError at the end, with the log of every run that failed;
    the same command resumes them. Raises it before anything trains where a folder, of a complete run too, holds one of
    another configuration or other content.
    """
    for run in runs:
        make_reference(run, say)
    for run in runs:
        refuse_another_run(run.config)
    waiting = [run for run in runs if not RunFolder(run.config.run_dir).completed.exists()]
    failed: list[StudyRun] = []

    def ended(run: StudyRun, succeeded: bool) -> None:
        say(f"{run.label}: {'done' if succeeded else 'FAILED'}")
        if succeeded:
            report()
        else:
            failed.append(run)

    _train_all(waiting, jobs, ended)
    if failed:
        logs = "\n".join(str(_log(run)) for run in failed)
        raise RunError(f"{len(failed)} of {len(runs)} runs failed. Fix the errors in these logs, then rerun:\n{logs}")


def make_reference(run: StudyRun, say: Say) -> None:
    """Sample the run's reference file if the method needs it and it is missing."""
    reference = run.config.reference
    if reference is not None and not reference.exists() and build(run.config.method).needs_reference:
        say(f"sampling the reference {reference}")
        sample_reference(run.config, reference)


def _train_all(waiting: Sequence[StudyRun], jobs: int, ended: Callable[[StudyRun, bool], None]) -> None:
    """Trains them all. What ends the study, in `ended` too, ends its runs, and their checkpoints stay."""
    queue, running = list(waiting), list[tuple[StudyRun, subprocess.Popen[bytes]]]()
    with ending_with_us(PATIENCE_SECONDS) as processes:
        while queue or running:
            while queue and len(running) < jobs:
                run = queue.pop(0)
                running.append((run, _start(run)))
                processes.append(running[-1][1])
            time.sleep(POLL_SECONDS)
            for run, process in list(running):
                if process.poll() is not None:
                    running.remove((run, process))
                    ended(run, process.returncode == 0)


def _start(run: StudyRun) -> "subprocess.Popen[bytes]":
    return start_module(MODULE, ["train", run.source, *override_words(run.overrides)], _log(run))


def _log(run: StudyRun) -> Path:
    return run.config.run_dir.parent / f"{run.config.run_dir.name}.log"
