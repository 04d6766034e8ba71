"""Child processes that end when we do, and why they failed. Each vLLM engine gets one, so that its memory is freed."""

import os
import signal
import site
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from os import environ
from pathlib import Path
from types import FrameType

from restrain_openrlhf.errors import RunError

MODULE = "restrain_openrlhf.commands.main"
POLL_SECONDS = 0.2
PATIENCE_SECONDS = 30
LAST_LINES = 12
PYTHONPATH = "PYTHONPATH"
TRACEBACK = "Traceback (most recent call last):"
# Ray copies what its workers print, in colour or not; it goes on doing so after the driver's own traceback.
FROM_A_WORKER = ("\x1b[", "(")


def python_module(module: str, words: Sequence[str]) -> list[str]:
    """`python -m MODULE WORDS...` that takes no file of the working folder for a module, such as a user's types.py."""
    return [sys.executable, "-P", "-m", module, *words]


def python_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Our environment and `extra`, without PYTHONPATH's empty entries, which stand for the working folder.

    A checkout that only `python -m` or such an entry made importable is named in their place.
    """
    entries = [os.path.abspath(path) for path in environ.get(PYTHONPATH, "").split(os.pathsep) if path]
    package = str(Path(__file__).parents[2])
    installed = {*site.getsitepackages(), site.getusersitepackages()}
    if package in map(os.path.abspath, sys.path) and package not in installed | set(entries):
        entries.append(package)
    rest = {name: value for name, value in environ.items() if name != PYTHONPATH}
    return {**rest, **({PYTHONPATH: os.pathsep.join(entries)} if entries else {}), **(extra or {})}


def start_module(
    module: str,
    words: Sequence[object],
    log: Path,
    environment: Mapping[str, str] | None = None,
    start_new_session: bool = False,
) -> "subprocess.Popen[bytes]":
    """Start `python -m MODULE WORDS...` with `environment` beside our own; its output is appended to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        return subprocess.Popen(
            python_module(module, [*map(str, words)]),
            stdout=file,
            stderr=subprocess.STDOUT,
            env=python_environment(environment),
            start_new_session=start_new_session,
        )


@dataclass(frozen=True)
class Command:
    """`restrain WORDS...`, its output appended to `log`."""

    words: Sequence[str]
    log: Path


def run_command(words: Sequence[str], log: Path) -> None:
    """Run one command. Raises RunError with the log's last lines if it fails."""
    run_together([Command(words, log)])


def run_together(
    commands: Sequence[Command],
    slots: Sequence[Mapping[str, str]] = (),
    on_poll: Callable[[], None] = lambda: None,
    on_end: Callable[[Command, int], None] | None = None,
) -> None:
    """Run all, each in a slot of its own, which are extra environment variables; by default all at the same time.

    If one fails, end the others and raise RunError with its log's last lines, unless there is `on_end`: it is told
    every command's status. `on_poll` is called while they run.
    """
    free, waiting = list(slots or [{} for _ in commands]), list(commands)
    running: dict[subprocess.Popen[bytes], tuple[Command, Mapping[str, str]]] = {}
    with ending_with_us() as processes:
        while waiting or running:
            while waiting and free:
                command, slot = waiting.pop(0), free.pop(0)
                processes.append(start_module(MODULE, command.words, command.log, slot, start_new_session=True))
                running[processes[-1]] = command, slot
            time.sleep(POLL_SECONDS)
            on_poll()
            for process, (command, slot) in list(running.items()):
                if (status := process.poll()) is None:
                    continue
                if status and on_end is None:
                    raise stopped(f"`restrain {command.words[0]}` stopped with status {status}", command.log)
                del running[process]
                free.append(slot)
                if on_end is not None:
                    on_end(command, status)


def stopped(what: str, log: Path) -> RunError:
    """The error of a process that did not do what it was started for, with its log's last lines."""
    return RunError(f"{what}.\n{tail(log)}\nLog: {log}")


def printed_in(log: Path, since: int = 0) -> list[str]:
    """The lines of a log from byte `since` on."""
    with log.open("rb") as file:
        file.seek(since)
        return file.read().decode(errors="replace").splitlines()


def tail(log: Path, since: int = 0) -> str:
    """The last of these lines."""
    return "\n".join(printed_in(log, since)[-LAST_LINES:])


def error_tail(log: Path, since: int = 0) -> str:
    """Why a host process ended: our own error, else the exception it died of, else its last lines."""
    printed = printed_in(log, since)
    ours = [line for line in printed if "restrain_openrlhf.errors." in line or line.startswith("error: ")]
    return "\n".join(ours[-1:] or _exception(printed)) or tail(log, since)


def _exception(printed: Sequence[str]) -> list[str]:
    """The lines of the last traceback that are no frames: the exception and its message."""
    if TRACEBACK not in printed:
        return []
    start = len(printed) - printed[::-1].index(TRACEBACK)
    ours = takewhile(lambda line: not line.startswith(FROM_A_WORKER), printed[start:])
    return [line for line in ours if line.strip() and not line.startswith(" ")]


@contextmanager
def ending_with_us(patience: float = PATIENCE_SECONDS) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """A list for processes: whatever ends the block, Ctrl-C and SIGTERM included, ends them too.

    They get SIGTERM, and SIGKILL after `patience` seconds. Not SIGINT: processes started in a script's background
    ignore it.
    """
    running: list[subprocess.Popen[bytes]] = []
    try:
        with sigterm_interrupts():
            yield running
    finally:
        alive = [process for process in running if process.poll() is None]
        for process in alive:
            _send(process, signal.SIGTERM)
        for process in alive:
            try:
                process.wait(timeout=patience)
            except subprocess.TimeoutExpired:
                _send(process, signal.SIGKILL)
                process.wait()


def _send(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    """To all of its process group where it leads one: an engine has processes of its own, which hold the GPU."""
    if os.getpgid(process.pid) == process.pid:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Within the block, SIGTERM raises KeyboardInterrupt, and so does a terminal that is closed (not under nohup).

    Python lets the main thread alone handle signals; a library call from another one does without.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ending = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) != signal.SIG_IGN]
    before = {each: signal.signal(each, _interrupt) for each in ending}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
