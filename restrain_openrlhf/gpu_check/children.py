"""Processes of the checks: each measurement has one of its own, so that its memory is free for the next."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from restrain_openrlhf.errors import RunError
from restrain_openrlhf.run.processes import ending_with_us, python_environment, python_module

# Longer than the 30 seconds that a run gives its own processes to end.
PATIENCE_SECONDS = 60
POLL_SECONDS = 0.2
# A measurement takes a minute or two, and kernels that are compiled the first time some more.
LIMIT_SECONDS = 900.0
LAST_LINES = 12
RESTRAIN = "restrain_openrlhf.cli.main"
TEST_TIME = "test_time.cli"


@contextmanager
def started(module: str, words: Sequence[object], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """`python -m MODULE WORDS...`, its output appended to `log`; ended with the block, whatever ends that."""
    with ending_with_us(PATIENCE_SECONDS) as running, log.open("ab") as file:
        process = subprocess.Popen(
            python_module(module, [*map(str, words)]),
            stdout=file,
            stderr=subprocess.STDOUT,
            env=python_environment(),
        )
        running.append(process)
        yield process


def run_module(module: str, words: Sequence[object], log: Path) -> None:
    """Run it to its end. Raises RunError with the log's last lines where it fails, or takes longer than the limit."""
    with started(module, words, log) as process:
        _wait_for(lambda: process.poll() is not None, module, log)
    if process.returncode:
        raise RunError(f"`python -m {module}` stopped with status {process.returncode}.\n{tail(log)}\nLog: {log}")


def kill_when(happened: Callable[[], bool], module: str, words: Sequence[object], log: Path) -> None:
    """Run it, and SIGKILL it with all that it started once `happened` says so. Raises RunError if it ends before."""
    with started(module, words, log) as process:
        _wait_for(lambda: happened() or process.poll() is not None, module, log)
        if process.poll() is not None:
            raise RunError(f"`python -m {module}` ended before it could be killed.\n{tail(log)}\nLog: {log}")
        kill_tree(process.pid)
        process.wait()


def _wait_for(happened: Callable[[], bool], module: str, log: Path) -> None:
    start = time.monotonic()
    while not happened():
        if time.monotonic() - start > LIMIT_SECONDS:
            raise RunError(
                f"`python -m {module}` was still running after {LIMIT_SECONDS / 60:.0f} minutes, and was ended.\n"
                f"{tail(log)}\nLog: {log}"
            )
        time.sleep(POLL_SECONDS)


def kill_tree(pid: int) -> None:
    """SIGKILL the process and everything below it, as a machine that goes down would; returns when all are gone."""
    import psutil  # noqa: PLC0415 - the training stack has it

    top = psutil.Process(pid)
    tree = [top, *top.children(recursive=True)]
    for process in tree:
        if process.is_running():
            os.kill(process.pid, signal.SIGKILL)
    psutil.wait_procs(tree[1:], timeout=PATIENCE_SECONDS)


def tail(log: Path) -> str:
    """The log's last lines."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:])


def json_lines(log: Path) -> list[dict[str, Any]]:
    """The JSON objects that a measurement printed, a line each, among what the libraries print."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return [json.loads(line) for line in lines if line.startswith('{"') and line.endswith("}")]
