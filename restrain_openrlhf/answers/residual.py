"""What the fast parser cannot read goes to latex2sympy2, in a process of its own with a deadline and a memory cap."""

import importlib.metadata
import json
import os
import re
import select
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import restrain_openrlhf
from restrain_openrlhf.answers import residual_worker
from restrain_openrlhf.answers.value import fingerprint
from restrain_openrlhf.errors import GraderError

# The commands latex2sympy2 reads and our parser does not. Other text stays text: on it latex2sympy2 reads a prefix and
# says nothing, which would merge different answers.
_COMMANDS = re.compile(
    r"\\(?:sum|prod|int|lim|lfloor|lceil|floor|ceil|max|min|gcd|lcm|det|begin\{vmatrix\})(?![a-zA-Z])"
)
_REFUSED = re.compile(
    r"[<>,;:=&]|\\(?:text|le|ge|ne|in|cup|cdots|ldots|dots)(?![a-zA-Z])|(?<![\\a-zA-Z])[a-zA-Z]{4,}|\d{5}|\^\{?\d{3}"
)
# Bounds under a sum or a limit, and the arguments of these functions, may hold what an answer may not.
_INSIDE = re.compile(r"_\{[^{}]*\}|\\(?:max|min|gcd|lcm)\s*\([^()]*\)|\\begin\{vmatrix\}.*?\\end\{vmatrix\}")
MAX_LENGTH = 160
DEADLINE_SECONDS = 1.0
# Importing sympy takes a second, and from a cold network drive many.
START_SECONDS = 180.0
# What every worker reads, if it reads anything.
PROBE, PROBE_KEY = r"\frac{1}{2}", f"value {fingerprint(Fraction(1, 2))}"
LIBRARY = "latex2sympy2"


@dataclass
class Residual:
    """One worker, started when first needed, replaced when it ends; safe from any thread.

    `asked`, `answered`, `timed_out` and `died` count what became of the texts.
    """

    asked: int = 0
    answered: int = 0
    timed_out: int = 0
    died: int = 0
    _timed_out_by_thread: Counter[int] = field(default_factory=Counter)
    _died_by_thread: Counter[int] = field(default_factory=Counter)
    _worker: "subprocess.Popen[str] | None" = None
    _owner: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def key(self, text: str) -> str | None:
        """The key by latex2sympy2; None where it cannot read the text, is too slow, or dies.

        Raises GraderError where a new worker does not start, or cannot read a half.
        """
        with self._lock:
            self.asked += 1
            worker = self._running() or self._start()
            reply = _reply(worker, text, DEADLINE_SECONDS)
            if not reply:
                self._count(slow=reply is None)
                self._give_up(worker)
                return None
            key: str | None = json.loads(reply)
            self.answered += key is not None
            return key

    @property
    def timed_out_in_this_thread(self) -> int:
        """As `timed_out`, of what the calling thread asked: what one group cost, while others are scored."""
        return self._timed_out_by_thread[threading.get_ident()]

    @property
    def died_in_this_thread(self) -> int:
        """As `died`, of what the calling thread asked."""
        return self._died_by_thread[threading.get_ident()]

    def _count(self, slow: bool) -> None:
        self.timed_out += slow
        self.died += not slow
        (self._timed_out_by_thread if slow else self._died_by_thread)[threading.get_ident()] += 1

    def _running(self) -> "subprocess.Popen[str] | None":
        """The worker, if it lives and is this process's own: a forked child must not share its pipes."""
        mine = self._worker is not None and self._owner == os.getpid() and self._worker.poll() is None
        return self._worker if mine else None

    def _start(self) -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        worker = subprocess.Popen(
            _command(), stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=_environment()
        )
        self._worker, self._owner = worker, os.getpid()
        found = _trouble(worker)
        if found:
            self._give_up(worker)
            raise GraderError(
                f"The process that reads answers with {LIBRARY} ({sys.executable}) {found}. Without it, equal answers "
                f"would be two. Install it again: `{sys.executable} -m pip install --force-reinstall --no-deps "
                f"{LIBRARY}==1.9.1 antlr4-python3-runtime==4.7.2`."
            )
        return worker

    def _give_up(self, worker: "subprocess.Popen[str]") -> None:
        worker.kill()
        worker.wait()
        self._worker = None

    def close(self) -> None:
        """End the worker; the next text starts another."""
        with self._lock:
            worker = self._running()
            if worker:
                self._give_up(worker)


def _command() -> list[str]:
    """The worker as a script, which gets the folder of this package and, to look in last, where we find packages.

    With -P, and without PYTHONPATH, no file of the working folder is taken for a module: latex2sympy2 imports `gen`.
    """
    package = Path(restrain_openrlhf.__file__).parents[1]
    folders = [*_folders_of_the_library(), *(os.path.abspath(path) for path in sys.path if path)]
    return [sys.executable, "-P", residual_worker.__file__, str(package), *folders]


def _folders_of_the_library() -> list[str]:
    try:
        return [str(importlib.metadata.distribution(LIBRARY).locate_file(""))]
    except importlib.metadata.PackageNotFoundError:
        return []


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def _trouble(worker: "subprocess.Popen[str]") -> str | None:
    """What is wrong with a worker that was just started; None for one that reads the probe as it should."""
    assert worker.stdout
    hello = _line(worker.stdout, START_SECONDS)
    if hello is None:
        return f"did not start within {START_SECONDS:.0f} s"
    said: dict[str, Any] = json.loads(hello or "{}")
    if "error" in said:
        return f"cannot import it: {said['error']}"
    reply = _reply(worker, PROBE, START_SECONDS) if said else ""
    if not reply:
        return f"did not read {PROBE} within {START_SECONDS:.0f} s" if reply is None else _ended(worker)
    key = json.loads(reply)
    return None if key == PROBE_KEY else f"reads {PROBE} as {key!r}, not as {PROBE_KEY!r}"


def _ended(worker: "subprocess.Popen[str]") -> str:
    return f"ended with status {worker.wait()} before it read anything"


def _reply(worker: "subprocess.Popen[str]", text: str, seconds: float) -> str | None:
    """The worker's line on a text, "" where it died, None if the line does not come in time."""
    assert worker.stdin
    assert worker.stdout
    try:
        worker.stdin.write(json.dumps(text) + "\n")
        worker.stdin.flush()
    except BrokenPipeError:
        return ""
    return _line(worker.stdout, seconds)


def _line(stream: IO[str], seconds: float) -> str | None:
    """The next line, "" at the end of the stream, None if it does not come in time."""
    ready, _, _ = select.select([stream], [], [], seconds)
    return stream.readline() if ready else None


RESIDUAL = Residual()


@lru_cache(maxsize=10_000)
def residual_key(text: str) -> str | None:
    """The key of a text with a sum, limit, floor and the like; None for any other text, or if it cannot be had."""
    if len(text) > MAX_LENGTH or not _COMMANDS.search(text) or _REFUSED.search(_INSIDE.sub("", text)):
        return None
    if re.search(r"\d{5}|\^\s*\{?\s*\d{2}", text):
        return None
    return RESIDUAL.key(text)
