"""What the fast parser cannot read goes to latex2sympy2, in a process of its own with a deadline and a memory cap."""

import json
import os
import re
import select
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import IO

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
START_SECONDS = 60.0


@dataclass
class Residual:
    """One worker, started when first needed, replaced when it is killed; safe from any thread.

    `asked`, `answered` and `timed_out` count what became of the texts.
    """

    asked: int = 0
    answered: int = 0
    timed_out: int = 0
    _timed_out_by_thread: Counter[int] = field(default_factory=Counter)
    _worker: "subprocess.Popen[str] | None" = None
    _owner: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def key(self, text: str) -> str | None:
        """The key by latex2sympy2; None where it cannot read the text, is too slow, or dies."""
        with self._lock:
            self.asked += 1
            worker = self._running() or self._start()
            assert worker.stdin
            assert worker.stdout
            try:
                worker.stdin.write(json.dumps(text) + "\n")
                worker.stdin.flush()
                reply = _line(worker.stdout, DEADLINE_SECONDS)
            except BrokenPipeError:
                reply = ""
            if not reply:
                self.timed_out += reply is None
                self._timed_out_by_thread[threading.get_ident()] += reply is None
                self._give_up(worker)
                return None
            key: str | None = json.loads(reply)
            self.answered += key is not None
            return key

    @property
    def timed_out_in_this_thread(self) -> int:
        """As `timed_out`, of what the calling thread asked: what one group cost, while others are scored."""
        return self._timed_out_by_thread[threading.get_ident()]

    def _running(self) -> "subprocess.Popen[str] | None":
        """The worker, if it lives and is this process's own: a forked child must not share its pipes."""
        mine = self._worker is not None and self._owner == os.getpid() and self._worker.poll() is None
        return self._worker if mine else None

    def _start(self) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "restrain_openrlhf.answers.residual_worker"]
        pipe = subprocess.PIPE
        worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        self._worker, self._owner = worker, os.getpid()
        assert worker.stdout
        _line(worker.stdout, START_SECONDS)
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
