"""Runs jobs in as many confined sandboxes as this process has cores, and checks what comes back.

A sandbox is confined by bubblewrap, or relies on the container that this process runs in.
"""

import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Literal

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.machine.sandbox.program import OUT_OF_TIME, RAISED, RETURNED, Job
from restrain_openrlhf.machine.sandbox.server import FREE, READY, SECONDS
from restrain_openrlhf.machine.sandbox.system_calls import LIBRARIES

Confinement = Literal["bubblewrap", "container"]

SERVER = "restrain_openrlhf.machine.sandbox.server"
# The files of this package that the server imports. No others are visible inside.
SERVER_FILES = ("__init__.py", "errors.py", "machine/__init__.py", "machine/sandbox")
INSIDE = "/inside"
# A fixed hash seed gives sets the same order in every run.
ENVIRONMENT = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}


def command(confinement: Confinement) -> list[str]:
    """The command that starts the server. Raises ConfigError if this machine cannot confine it in this way."""
    if platform.system() != "Linux":
        raise ConfigError(
            "The kind of answer `code` runs programs in a sandbox that needs Linux, and this system is "
            f"{platform.system()}. Run on Linux, or choose another kind of answer."
        )
    return _bubblewrap() if confinement == "bubblewrap" else _python()


def environment(confinement: Confinement) -> dict[str, str]:
    """The server's whole environment. Ours is left out, because a program could read a token in it."""
    folder = INSIDE if confinement == "bubblewrap" else str(_package().parent)
    return {**ENVIRONMENT, "PYTHONPATH": folder}


def _bubblewrap() -> list[str]:
    """Separate namespaces; the interpreter and its libraries read-only; no other files, no network, /proc or /dev."""
    wrapper = shutil.which("bwrap")
    if wrapper is None:
        raise ConfigError(
            "The kind of answer `code` runs untrusted programs and confines them with `bwrap`, which is not "
            "installed. Install it (`apt-get install bubblewrap`), or set `answers.sandbox: container` if you trust "
            "the container of this run to confine them."
        )
    prefix, package = Path(sys.base_prefix), _package()
    visible = [*LIBRARIES, f"{prefix}/lib", os.path.realpath(_interpreter())]
    binds = [word for path in dict.fromkeys(visible) for word in ("--ro-bind-try", path, path)]
    if _interpreter() not in visible:
        binds += ["--ro-bind", os.path.realpath(_interpreter()), _interpreter()]
    for name in SERVER_FILES:
        binds += ["--ro-bind", str(package / name), f"{INSIDE}/restrain_openrlhf/{name}"]
    # Each namespace is named, because `--unshare-all` would do without a user namespace if there can be none.
    spaces = [f"--unshare-{name}" for name in ("user", "pid", "net", "ipc", "uts", "cgroup-try")]
    rest = ["--remount-ro", "/", "--chdir", "/", "--new-session", "--die-with-parent", "--cap-drop", "ALL"]
    return [wrapper, *spaces, *binds, *rest, *_python()]


def _python() -> list[str]:
    """The command of the server, without the packages of this environment."""
    return [_interpreter(), "-s", "-S", "-B", "-P", "-m", SERVER]


def _interpreter() -> str:
    """The interpreter that the virtual environment was made from."""
    return str(getattr(sys, "_base_executable", sys.executable))


def _package() -> Path:
    return Path(__file__).parents[2]


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
