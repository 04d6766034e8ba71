"""Runs jobs in as many sandboxes as this process has cores, and checks what comes back."""

import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.machine.sandbox.confinement import Confinement, command, environment
from restrain_openrlhf.machine.sandbox.program import OUT_OF_TIME, RAISED, RETURNED, Job
from restrain_openrlhf.machine.sandbox.server import FREE, READY, SECONDS

START_SECONDS = 30.0
# On a busy machine CPU time passes more slowly than wall time. A program that has not ended after this much wall time
# is killed.
WALL_PER_CPU_SECOND = 20.0
GRACE_SECONDS = 5.0
DIED = "!died"
LINE_BYTES = 40
_OUTCOME = re.compile(rf"{RETURNED}[0-9a-f]{{32}}|{RAISED}|{OUT_OF_TIME}")


class Sandbox:
    """One server in its confinement. It must not be used by several threads at a time."""

    def __init__(self, confinement: Confinement) -> None:
        self.control, theirs = socket.socketpair()
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            command(confinement),
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment(confinement),
            # A new session has no terminal, into which a program could type.
            start_new_session=True,
        )
        theirs.close()
        self.control.settimeout(START_SECONDS)
        try:
            greeting = self.control.recv(len(READY))
        except OSError:
            greeting = b""
        if greeting != READY:
            raise _does_not_start(self.close(), confinement)

    def run(self, job: Job) -> tuple[str, ...] | None:
        """An outcome for each input; None if the server itself has died.

        If a program closes or fills its channel and keeps running, the server is ended, so that it does not delay the
        next program.
        """
        seconds = job.program_seconds * WALL_PER_CPU_SECOND
        ours, theirs = socket.socketpair()
        with ours:
            try:
                socket.send_fds(self.control, [SECONDS.pack(seconds)], [theirs.fileno()])
            except OSError:
                return None
            finally:
                theirs.close()
            ours.settimeout(seconds + GRACE_SECONDS)
            # A program that ends before it has read its job is recognised by its missing answer.
            with suppress(BrokenPipeError, ConnectionResetError):
                ours.sendall(job.as_bytes())
            text = _read(ours, len(job.inputs) * LINE_BYTES, time.monotonic() + seconds + GRACE_SECONDS)
        if self.process.poll() is not None:
            return None
        if not self._is_free():
            self.process.kill()
            self.process.wait()
        return checked(text, len(job.inputs))

    def _is_free(self) -> bool:
        """Whether the server reports that the program has ended."""
        self.control.settimeout(GRACE_SECONDS)
        with suppress(OSError):
            return self.control.recv(len(FREE)) == FREE
        return False

    def close(self) -> str:
        """End the server and the program in it. Returns the server's error output."""
        self.control.close()
        self.process.kill()
        with self.process:
            assert self.process.stderr
            return str(self.process.stderr.read().decode(errors="replace")).strip()


def _read(channel: socket.socket, most: int, end: float) -> bytes:
    """Read until the other end closes, has sent more than `most` bytes, or the time is over."""
    text = b""
    with suppress(OSError):
        while len(text) <= most and (left := end - time.monotonic()) > 0:
            channel.settimeout(left)
            part = channel.recv(1 << 16)
            if not part:
                break
            text += part
    return text


def checked(text: bytes, count: int) -> tuple[str, ...]:
    """One outcome for each input. A program may write anything, so the first invalid line ends the list."""
    lines = text.decode("ascii", "replace").split("\n")[:-1][:count]
    valid = next((place for place, line in enumerate(lines) if not _OUTCOME.fullmatch(line)), len(lines))
    return (*lines[:valid], *[DIED] * (count - valid))


def _does_not_start(said: str, confinement: Confinement) -> ConfigError:
    return ConfigError(
        f"The sandbox for programs does not start under {confinement} ({said[-300:] or 'it says nothing'}). Allow "
        "this container user namespaces and seccomp filters, or, if bubblewrap is the obstacle and you trust the "
        "container to confine untrusted programs, set `answers.sandbox: container`."
    )


class _Pool:
    """Threads that each own a sandbox, because bubblewrap ends its sandbox with the thread that started it."""

    def __init__(self, confinement: Confinement) -> None:
        self.confinement = confinement
        self.threads = ThreadPoolExecutor(len(os.sched_getaffinity(0)), thread_name_prefix="sandbox")
        self.local = threading.local()

    def run(self, job: Job, end: float) -> tuple[str, ...] | None:
        """Run on this thread's sandbox, or on a new one if that has died. None if the time is over already."""
        if time.monotonic() > end:
            return None
        for _ in range(2):
            sandbox = getattr(self.local, "sandbox", None) or Sandbox(self.confinement)
            self.local.sandbox = sandbox
            outcomes = sandbox.run(job)
            if outcomes is not None:
                return outcomes
            sandbox.close()
            self.local.sandbox = None
        return (DIED,) * len(job.inputs)


@lru_cache(maxsize=4)
def _pool(confinement: Confinement, _process: int) -> _Pool:
    """One pool per process, because threads do not survive in a forked child."""
    return _Pool(confinement)


def run_all(jobs: Sequence[Job], confinement: Confinement, seconds: float) -> list[tuple[str, ...] | None]:
    """Each job's outcomes, one for each of its inputs; None for a job that did not begin within `seconds`.

    An outcome is `=` with a digest of what was returned, or `!` with the kind of failure. Raises ConfigError if this
    machine cannot run such a sandbox.
    """
    pool, end = _pool(confinement, os.getpid()), time.monotonic() + seconds
    return list(pool.threads.map(lambda job: pool.run(job, end), jobs))
