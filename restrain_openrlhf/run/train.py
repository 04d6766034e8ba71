"""Runs one configuration from start to end, or from its last checkpoint: check, start the host, follow it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from restrain_openrlhf.config.host_defaults import host_flags
from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.hook.host_flags import parse, to_arguments
from restrain_openrlhf.hook.preflight import check_run, prompt_count
from restrain_openrlhf.run.folder import RunFolder
from restrain_openrlhf.run.metrics import StepRow, read_steps
from restrain_openrlhf.run.signals import sigterm_interrupts

POLL_SECONDS = 0.5
ENTRY_POINT = "restrain_openrlhf.hook.train_ppo_ray"


def train(config: RunConfig, on_step: Callable[[StepRow, int], None] = lambda _row, _total: None) -> RunFolder:
    """Train to the end; a folder that holds part of this run is continued, a whole one is returned at once.

    `on_step` gets each step's row, the ones of an earlier start included, and the run's number of steps.
    Raises ConfigError, DataError or ReferencePassError before anything heavy starts, RunError if the host stops early.
    """
    folder = RunFolder(config.run_dir)
    flags = host_flags(config)
    words = to_arguments(flags)
    check_run(config, parse(words))
    lock = folder.lock()
    try:
        folder.claim(config, flags)
        if not folder.completed.exists():
            total = total_steps(config, flags)
            _run_host(folder, words, lock, lambda row: on_step(row, total))
            folder.mark_completed(steps=max((row.step for row in read_steps(folder.metrics)), default=0))
    finally:
        os.close(lock)
    return folder


def total_steps(config: RunConfig, flags: dict[str, object]) -> int:
    """Rollout batches of the whole run: the host takes a last, smaller batch at the end of an episode.

    `steps` ends a run earlier.
    """
    arguments = vars(parse(to_arguments(flags)))
    batch = int(arguments["rollout.batch_size"])
    every = int(arguments["train.num_episodes"]) * -(-prompt_count(config, arguments) // batch)
    return every if config.steps is None else min(config.steps, every)


def command(folder: RunFolder, words: list[str]) -> list[str]:
    """The process that trains: OpenRLHF's entry point with the hook on."""
    return [sys.executable, "-m", ENTRY_POINT, "--restrain.config", str(folder.hook_config), *words]


def _run_host(folder: RunFolder, words: list[str], lock: int, on_step: Callable[[StepRow], None]) -> None:
    with folder.log.open("ab") as log:
        host = subprocess.Popen(command(folder, words), stdout=log, stderr=subprocess.STDOUT, pass_fds=(lock,))
        with _stopping_with_us(host):
            seen = 0
            while host.poll() is None:
                seen = _report_new(folder.metrics, seen, on_step)
                time.sleep(POLL_SECONDS)
            _report_new(folder.metrics, seen, on_step)
    if host.returncode != 0:
        raise RunError(f"OpenRLHF stopped with status {host.returncode}.\n{_last_words(folder.log)}\nLog: {folder.log}")


def _report_new(metrics: Path, seen: int, on_step: Callable[[StepRow], None]) -> int:
    new = [row for row in read_steps(metrics) if row.step > seen]
    for row in new:
        on_step(row)
    return max((row.step for row in new), default=seen)


@contextmanager
def _stopping_with_us(host: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Ctrl-C and a cluster's SIGTERM reach the host too, and we wait for it to end."""
    try:
        with sigterm_interrupts():
            yield
    finally:
        if host.poll() is None:
            host.send_signal(signal.SIGINT)
            try:
                host.wait(timeout=30)
            except subprocess.TimeoutExpired:
                host.kill()
                host.wait()


def _last_words(log: Path, lines: int = 12) -> str:
    """The lines of the log that say what went wrong: our own error, else the end of the last traceback."""
    tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-400:]
    ours = [line for line in tail if "restrain_openrlhf.errors." in line or line.startswith("error: ")]
    return "\n".join(ours[-1:] or tail[-lines:])
