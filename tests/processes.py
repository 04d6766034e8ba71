"""For tests that start processes of their own: what they print, a free port, Ctrl-C, the accelerator."""

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.conftest import ROOT

# Before a program's own lines: a test run in a script's background ignores SIGINT, and so would what it starts.
HEEDS_CTRL_C = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"


# A port is free until its server has started, so that it is given out once, and by one process of the test run.
_GIVEN: set[int] = set()
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8


def free_port() -> int:
    """A port that nobody has. It is below those that the system gives to clients, so that none of them takes it."""
    while True:
        port = 16_000 + 2_000 * _WORKER + secrets.randbelow(2_000)
        if port in _GIVEN:
            continue
        _GIVEN.add(port)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port


def needs_its_accelerator() -> None:
    """OpenRLHF's strategy asks CUDA for a device as it starts, where the CUDA stack is installed."""
    import torch

    from restrain_openrlhf.machine.devices import detect

    if detect().has_gpus and not torch.cuda.is_available():
        pytest.skip("needs a GPU: the CUDA stack is installed")


def printed(*processes: tuple[object, ...], **environment: str) -> list[str]:
    """What Python prints for each of these words, all at once: DeepSpeed, Ray and vLLM take hold of a whole process."""
    running = [
        subprocess.Popen(
            [sys.executable, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **environment},
        )
        for words in processes
    ]
    outputs = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0] * len(running), outputs[0][1][-3000:]
    return [out for out, _ in outputs]


def rows_printed(*words: object) -> list[dict]:
    """The objects that a process prints, each in a line, as JSON."""
    needs_its_accelerator()
    (said,) = printed(words)
    return [json.loads(line) for line in said.splitlines() if line.startswith('{"')]


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def program(folder: Path, name: str, script: str) -> Path:
    """An executable file with this script for a shell."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path
