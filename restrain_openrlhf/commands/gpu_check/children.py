"""Processes of the checks: each measurement has one of its own, so that its memory is free for the next."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from restrain_openrlhf.machine.processes import POLL_SECONDS, ending_with_us, printed_in, start_module, stopped

# Longer than the 30 seconds that a run gives its own processes to end.
PATIENCE_SECONDS = 60
# A measurement takes a minute or two, and kernels that are compiled the first time some more.
LIMIT_SECONDS = 900.0
RESTRAIN = "restrain_openrlhf.commands.main"
TEST_TIME = "test_time.cli"


def measured(module: str, words: Sequence[object], log: Path) -> list[dict[str, Any]]:
    """Run it as `run_module`; the JSON objects that it printed."""
    run_module(module, words, log)
    return json_lines(log)


def json_lines(log: Path) -> list[dict[str, Any]]:
    """The JSON objects that a measurement printed, a line each, among what the libraries print."""
    return [json.loads(line) for line in printed_in(log) if line.startswith('{"') and line.endswith("}")]


def run_module(module: str, words: Sequence[object], log: Path) -> None:
    """`python -m MODULE WORDS...` to its end, its output appended to `log`; ended with us, whatever ends us.

    Raises RunError with the log's last lines where it fails, or takes longer than the limit.
    """
    if status := _run(module, words, log):
        raise stopped(f"`python -m {module}` stopped with status {status}", log)


def kill_when(happened: Callable[[], bool], module: str, words: Sequence[object], log: Path) -> None:
    """Run it, and SIGKILL it with all that it started once `happened` says so. Raises RunError if it ends before."""
    if _run(module, words, log, happened) is not None:
        raise stopped(f"`python -m {module}` ended before it could be killed", log)


def _run(module: str, words: Sequence[object], log: Path, is_killed: Callable[[], bool] = lambda: False) -> int | None:
    """Its exit status; None where it was killed."""
    latest = time.monotonic() + LIMIT_SECONDS
    with ending_with_us(PATIENCE_SECONDS) as running:
        process = start_module(module, words, log)
        running.append(process)
        while process.poll() is None:
            if is_killed():
                kill_tree(process.pid)
                process.wait()
                return None
            if time.monotonic() > latest:
                minutes = f"{LIMIT_SECONDS / 60:.0f} minutes"
                raise stopped(f"`python -m {module}` was still running after {minutes}, and was ended", log)
            time.sleep(POLL_SECONDS)
        return process.returncode


def kill_tree(pid: int) -> None:
    """SIGKILL the process and everything below it, as a machine that goes down would; returns when all are gone."""
    import psutil  # noqa: PLC0415 - the training stack has it

    top = psutil.Process(pid)
    below = top.children(recursive=True)
    for process in (top, *below):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(below, timeout=PATIENCE_SECONDS)
