"""Runs child processes that end when this one does or are killed when they hang, and reports why one failed.

Each vLLM engine gets its own process, so that its memory is freed when it ends; so does a library that may hang or die.
"""

import json
import os
import select
import signal
import site
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile
from os import environ
from pathlib import Path
from tempfile import TemporaryFile
from types import FrameType
from typing import Any

from restrain_openrlhf.errors import FULL_DISK, RunError

# How long to wait for the status of a process that has closed its output.
END_SECONDS = 5.0


class WorkerProcess:
    """A Python script that is killed if it does not answer in time. Its first line is a greeting, to be `read`.

    With -P and without PYTHONPATH, files of the working folder are not on the script's module path.
    """

    def __init__(self, script_and_arguments: Sequence[str]) -> None:
        pipe = subprocess.PIPE
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        words = [sys.executable, "-P", *script_and_arguments]
        self.process = subprocess.Popen(
            words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        self._owner = os.getpid()

    @property
    def is_ready(self) -> bool:
        """Whether the script runs and was started by this process; a forked child must not share its pipes."""
        return self._owner == os.getpid() and self.process.poll() is None

    def ask(self, question: object, seconds: float) -> Any:
        """The answer to a question. Raises TimeoutError and EOFError as `read` does."""
        return self.read(seconds, json.dumps(question) + "\n")

    def read(self, seconds: float, question: str = "") -> Any:
        """The next line. Raises TimeoutError if it does not come in time, and EOFError if the process has ended.

        After any exception, including one such as KeyboardInterrupt, the process has been ended.
        """
        assert self.process.stdin
        assert self.process.stdout
        try:
            # A process that has ended is noticed when its answer is read.
            with suppress(BrokenPipeError):
                self.process.stdin.write(question)
                self.process.stdin.flush()
            ready, _, _ = select.select([self.process.stdout], [], [], seconds)
            if not ready:
                raise TimeoutError
            if line := self.process.stdout.readline():
                return json.loads(line)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(END_SECONDS)
            self.process.kill()
            raise EOFError(f"ended with status {self.process.wait()}")
        except BaseException:
            # An unread answer would be taken for that of the next question.
            self.close()
            raise

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream
            with suppress(BrokenPipeError):
                stream.close()


MODULE = "restrain_openrlhf.commands.main"
POLL_SECONDS = 0.2
PATIENCE_SECONDS = 30
LAST_LINES = 12
# A disk without space for so much is full.
PROBE_BYTES = 1 << 16
PYTHONPATH = "PYTHONPATH"
TRACEBACK = "Traceback (most recent call last):"
# Beginnings of lines that Ray copies from its workers, with or without colour, also after the driver's traceback.
FROM_A_WORKER = ("\x1b[", "(")


def python_module(module: str, words: Sequence[str]) -> list[str]:
    """`python -P -m MODULE WORDS…`: -P keeps files of the working folder, such as a user's types.py, off sys.path."""
    return [sys.executable, "-P", "-m", module, *words]


def python_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment and `extra`, without empty entries of PYTHONPATH, which mean the working folder.

    If the package was importable only by such an entry or by `python -m` in a checkout, its folder is added instead.
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
    pass_fds: Sequence[int] = (),
) -> "subprocess.Popen[bytes]":
    """Start `python -m MODULE WORDS…` with `environment` added to ours. Its output is appended to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        return subprocess.Popen(
            python_module(module, [*map(str, words)]),
            stdout=file,
            stderr=subprocess.STDOUT,
            env=python_environment(environment),
            start_new_session=start_new_session,
            pass_fds=pass_fds,
        )


@dataclass(frozen=True)
class Command:
    """`restrain WORDS…`, with its output appended to `log`."""

    words: Sequence[str]
    log: Path


def run_command(words: Sequence[str], log: Path, on_poll: Callable[[], None] = lambda: None) -> None:
    """Run one command; see `run_together`. Raises RunError with the log's last lines if it fails."""
    run_together([Command(words, log)], on_poll=on_poll)


def run_together(
    commands: Sequence[Command],
    slots: Sequence[Mapping[str, str]] = (),
    on_poll: Callable[[], None] = lambda: None,
    on_end: Callable[[Command, int], None] | None = None,
) -> None:
    """Run all commands, each in a free slot, which is a set of environment variables; by default all at once.

    If a command fails, end the others and raise RunError with its log's last lines. With `on_end`, which is given every
    command's status, failures do not stop the others. `on_poll` is called every POLL_SECONDS.
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
    """The error for a process that ended too early, with the reason from its log."""
    return RunError(f"{what}.\n{error_tail(log)}\nLog: {log}")


def printed_in(log: Path, since: int = 0) -> list[str]:
    """The lines of a log from byte `since` on."""
    with log.open("rb") as file:
        file.seek(since)
        return file.read().decode(errors="replace").splitlines()


def _full_disk(log: Path) -> str:
    """That the log's disk is full, in a line; empty if it is not."""
    try:
        with TemporaryFile(dir=log.parent) as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
    except OSError as error:
        if error.errno in FULL_DISK:
            return f"{log.parent}: no space left. Free some, and start the same command again.\n"
    return ""


def error_tail(log: Path, since: int = 0) -> str:
    """Why a process ended: an error of ours in its log from byte `since` on, or else its exception, or its last lines.

    On a full disk the log may lack the reason, so a line about the disk comes first.
    """
    printed = printed_in(log, since)
    ours = [line for line in printed if "restrain_openrlhf.errors." in line or line.startswith("error: ")]
    return "\n".join(ours[-1:]) or _full_disk(log) + "\n".join(_exception(printed) or printed[-LAST_LINES:])


def _exception(printed: Sequence[str]) -> list[str]:
    """The exception and its message from the last traceback."""
    if TRACEBACK not in printed:
        return []
    start = len(printed) - printed[::-1].index(TRACEBACK)
    ours = takewhile(lambda line: not line.startswith(FROM_A_WORKER), printed[start:])
    return [line for line in ours if line.strip() and not line.startswith(" ")]


@contextmanager
def ending_with_us(patience: float = PATIENCE_SECONDS) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Yields a list; the processes in it end when the block ends, also by Ctrl-C or SIGTERM.

    They get SIGTERM, and SIGKILL after `patience` seconds. SIGINT would be ignored by processes that a script started
    in the background.
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
    """Signal a process and, if it leads a process group, the group: an engine's child processes hold the GPU."""
    if os.getpgid(process.pid) == process.pid:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """In the block, SIGTERM raises KeyboardInterrupt, and so does SIGHUP unless it is ignored (nohup).

    Python allows only the main thread to set signal handlers, so in another thread nothing changes.
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
