"""Trains one configuration, from the start or the last checkpoint: checks it, starts OpenRLHF, follows its steps."""

import argparse
import os
import subprocess
import time
from collections.abc import Callable, Sequence

from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.hook.compatibility import refuse_settings, refuse_unsupported
from restrain_openrlhf.hook.devices import detect
from restrain_openrlhf.hook.error_tail import error_tail
from restrain_openrlhf.hook.host_flags import host_flags, parse, to_arguments
from restrain_openrlhf.hook.preflight import check_run, prompt_count
from restrain_openrlhf.hook.sizes import rollout_batches
from restrain_openrlhf.hook.this_machine import on_this_machine
from restrain_openrlhf.run.folder import Completion, RunFolder
from restrain_openrlhf.run.metrics import StepRow, read_steps
from restrain_openrlhf.run.processes import ending_with_us, python_environment, python_module
from restrain_openrlhf.tracking.mlflow_run import ending

POLL_SECONDS = 0.5
ENTRY_POINT = "restrain_openrlhf.hook.train_ppo_ray"


StepListener = Callable[[StepRow, int], None]
# Gets all steps so far; returns why the run should end now, or None.
StopRule = Callable[[Sequence[StepRow]], str | None]


def train(
    config: RunConfig,
    on_step: StepListener = lambda _row, _total: None,
    should_stop: StopRule = lambda _rows: None,
) -> RunFolder:
    """Train to the end. A folder with part of this run is resumed; one with a completed run is returned unchanged.

    `on_step` gets each step's row, including those of an earlier start, and the run's number of steps. `should_stop`
    is called after each step; a reason from it ends the run for good (`RunFolder.completion`), without a last model.
    Raises ConfigError, DataError or ReferencePassError before anything heavy starts, RunError if the host stops early.
    """
    folder = RunFolder(config.run_dir)
    config = on_this_machine(config)
    flags = host_flags(config)
    words = to_arguments(flags)
    check_run(config, with_the_devices(flags))
    lock = folder.lock()
    try:
        folder.claim(config, flags)
        if not folder.completed.exists():
            total = total_steps(config, flags)
            with ending(config.mlflow, folder.path):
                stopped = _run_host(folder, words, lock, lambda row: on_step(row, total), should_stop)
            steps = max((row.step for row in read_steps(folder.metrics)), default=0)
            folder.mark_completed(Completion(steps=steps, stopped=stopped))
    finally:
        os.close(lock)
    return folder


def refuse_another_run(config: RunConfig) -> None:
    """Raises RunError where the run's folder holds a run with another configuration, or one made from other content."""
    config = on_this_machine(config)
    RunFolder(config.run_dir).refuse_another(config, host_flags(config))


def check_flags(config: RunConfig) -> None:
    """The checks of a run that do not need its reference file.

    Raises ConfigError for a flag OpenRLHF does not take, flags that contradict the method or other settings, and a
    layout that it could not run.
    """
    arguments = arguments_here(config)
    refuse_settings(config, vars(arguments))
    refuse_unsupported(detect(), vars(arguments))


def arguments_here(config: RunConfig) -> argparse.Namespace:
    """The host's namespace for a run of this configuration on this machine."""
    return with_the_devices(host_flags(on_this_machine(config)))


def with_the_devices(flags: dict[str, object]) -> argparse.Namespace:
    """The host's namespace for these flags and those that this stack's accelerator adds, as the run will have it."""
    return parse(to_arguments({**detect().host_flags, **flags}))


def total_steps(config: RunConfig, flags: dict[str, object]) -> int:
    """Rollout batches of the whole run; `steps` ends it earlier."""
    arguments = vars(parse(to_arguments(flags)))
    every = rollout_batches(prompt_count(config, arguments), arguments)
    return every if config.steps is None else min(config.steps, every)


def command(folder: RunFolder, words: list[str]) -> list[str]:
    """The process that trains: OpenRLHF's entry point with the hook on."""
    return python_module(ENTRY_POINT, ["--restrain.config", str(folder.hook_config), *words])


def _run_host(
    folder: RunFolder, words: list[str], lock: int, on_step: Callable[[StepRow], None], should_stop: StopRule
) -> str | None:
    """Returns why the run was stopped, or None where the host came to its end."""
    with folder.log.open("ab") as log:
        start = folder.log.stat().st_size
        with ending_with_us() as running:
            host = subprocess.Popen(
                command(folder, words),
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(lock,),
                env=python_environment(),
            )
            running.append(host)
            seen = 0
            while host.poll() is None:
                rows = read_steps(folder.metrics)
                new = _report_new(rows, seen, on_step)
                if new > seen and (reason := should_stop(rows)):
                    return reason
                seen = new
                time.sleep(POLL_SECONDS)
            _report_new(read_steps(folder.metrics), seen, on_step)
    if host.returncode != 0:
        why = error_tail(folder.log, start)
        raise RunError(f"OpenRLHF stopped with status {host.returncode}.\n{why}\nLog: {folder.log}")
    return None


def _report_new(rows: Sequence[StepRow], seen: int, on_step: Callable[[StepRow], None]) -> int:
    new = [row for row in rows if row.step > seen]
    for row in new:
        on_step(row)
    return max((row.step for row in new), default=seen)
