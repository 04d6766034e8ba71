"""Child processes that end when we do. Each vLLM engine gets its own, so that its memory is freed."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import environ
from pathlib import Path
from types import FrameType

from restrain_openrlhf.errors import RunError
from restrain_openrlhf.hook.devices import visible_gpus

MODULE = "restrain_openrlhf.cli.main"
POLL_SECONDS = 0.2
PATIENCE_SECONDS = 30


@dataclass(frozen=True)
class Command:
    """`restrain WORDS...`, with extra environment variables, its output appended to `log`."""

    words: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)


def run_command(words: Sequence[str], log: Path) -> None:
    """Run one command. Raises RunError with the log's last lines if it fails."""
    run_together([Command(words, log)])


def run_on_all_gpus(words: Sequence[str], log: Path, tensor_parallel_size: int) -> int:
    """Run a command that takes `--shard` in as many processes as engines of that size fit on the visible GPUs.

    Returns the number of shards; with 1 the command ran as it is. Raises RunError if one fails; what the others wrote
    is kept.
    """
    engines = engine_gpus(visible_gpus(), tensor_parallel_size)
    if len(engines) <= 1:
        run_command(words, log)
        return 1
    count = len(engines)
    run_together(
        [
            Command(
                [*words, "--shard", f"{index}/{count}"],
                log.with_name(f"{log.stem}.{index}{log.suffix}"),
                {"CUDA_VISIBLE_DEVICES": ",".join(gpus)},
            )
            for index, gpus in enumerate(engines)
        ]
    )
    return count


def engine_gpus(gpus: Sequence[str], size: int) -> list[Sequence[str]]:
    """The GPUs of each engine, `size` per engine; the remainder stays idle."""
    return [gpus[start : start + size] for start in range(0, len(gpus) - size + 1, size)]


def run_together(commands: Sequence[Command]) -> None:
    """Run all at the same time. If one fails, end the others and raise RunError with its log's last lines."""
    with ending_with_us() as running:
        for command in commands:
            running.append(_start(command))
        waiting = list(zip(commands, running, strict=True))
        while waiting:
            time.sleep(POLL_SECONDS)
            for command, process in waiting:
                if process.poll():
                    raise RunError(_why(command, process.returncode))
            waiting = [(command, process) for command, process in waiting if process.returncode is None]


def _start(command: Command) -> "subprocess.Popen[bytes]":
    with command.log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", MODULE, *command.words],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**environ, **command.environment},
        )


def _why(command: Command, status: int) -> str:
    tail = "\n".join(command.log.read_text(encoding="utf-8", errors="replace").splitlines()[-12:])
    return f"`restrain {command.words[0]}` stopped with status {status}.\n{tail}\nLog: {command.log}"


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
            process.terminate()
        for process in alive:
            try:
                process.wait(timeout=patience)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Within the block, SIGTERM raises KeyboardInterrupt.

    Python lets the main thread alone handle signals; a library call from another one does without.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
