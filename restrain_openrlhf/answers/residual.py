"""Reads sums, limits and integrals, which our parser does not, with latex2sympy2 in a process of its own."""

import importlib.metadata
import importlib.util
import os
import re
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

from restrain_openrlhf.answers import residual_worker
from restrain_openrlhf.answers.value import fingerprint
from restrain_openrlhf.errors import GraderError
from restrain_openrlhf.machine.processes import WorkerProcess

# Commands that latex2sympy2 reads and our parser does not. Other text is compared as text, because latex2sympy2 would
# silently read only its beginning, which would merge different answers.
_COMMANDS = re.compile(
    r"\\(?:sum|prod|int|lim|lfloor|lceil|floor|ceil|max|min|gcd|lcm|det|begin\{vmatrix\})(?![a-zA-Z])"
)
_REFUSED = re.compile(r"[<>,;:=&]|\\(?:text|le|ge|ne|in|cup|cdots|ldots|dots)(?![a-zA-Z])|(?<![\\a-zA-Z])[a-zA-Z]{4,}")
_LARGE = re.compile(r"\d{5}|\^\s*\{?\s*\d{2}")
# Bounds of a sum or limit, and arguments of these functions, may contain what is refused elsewhere.
_INSIDE = re.compile(r"_\{[^{}]*\}|\\(?:max|min|gcd|lcm)\s*\([^()]*\)|\\begin\{vmatrix\}.*?\\end\{vmatrix\}")
MAX_LENGTH = 160
# CPU time of one text, so that the same text has the same key on an idle machine and on a busy one.
DEADLINE_SECONDS = 1.0
# On a busy machine CPU time passes more slowly than wall time. A text without a key after this is given up, too.
PATIENCE_SECONDS = 20.0
# After so many deaths in a row, without a text read between them, no single answer is to blame.
MOST_DEATHS = 20
# Importing sympy takes a second, and much longer from a cold network drive.
START_SECONDS = 180.0
# A test question for a new worker, and its answer.
PROBE, PROBE_KEY = r"\frac{1}{2}", f"value {fingerprint(Fraction(1, 2))}"
LIBRARY = "latex2sympy2"
# It needs one version of antlr4, and other packages need others, so it may have a folder with its own
# (docs/start/install.md).
HOME = Path(sys.prefix) / LIBRARY
REMEDY = (
    f"Install it in a folder of its own, so that its version of antlr4 meets no other: `{sys.executable} -m pip "
    f"install --target {HOME} {LIBRARY}==1.9.1`."
)


@dataclass
class Residual:
    """A worker, started when first needed and replaced when it ends. Safe to use from several threads."""

    _deaths: int = 0
    _worker: WorkerProcess | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def key(self, text: str) -> str | None:
        """The key by latex2sympy2; None if it cannot read the text, is too slow, or dies.

        Raises GraderError if a new worker does not start or fails its test, and after MOST_DEATHS deaths in a row.
        """
        with self._lock:
            if self._worker is None or not self._worker.is_ready:
                self._worker = _started()
            try:
                key: str | None = self._worker.ask([text, DEADLINE_SECONDS], PATIENCE_SECONDS)
                self._deaths = 0
                return key
            except TimeoutError:
                return None
            except EOFError:
                # The worker ends itself by SIGPROF at the deadline.
                self._deaths += self._worker.process.returncode != -signal.SIGPROF
        if self._deaths >= MOST_DEATHS:
            raise GraderError(
                f"{LIBRARY}'s process died at each of the last {self._deaths} answers that it was given, so that equal "
                "answers would count as different. It may take 2 GiB of memory: see that as much is free."
            )
        return None


RESIDUAL = Residual()


@lru_cache(maxsize=10_000)
def residual_key(text: str) -> str | None:
    """The key of a text with a sum, a limit or another of _COMMANDS; None for other texts, or if there is no key."""
    if len(text) > MAX_LENGTH or not _COMMANDS.search(text):
        return None
    if _REFUSED.search(_INSIDE.sub("", text)) or _LARGE.search(text):
        return None
    return RESIDUAL.key(text)


def refuse_missing_library() -> None:
    """Raises GraderError if latex2sympy2 is neither in its folder nor on Python's path."""
    if not HOME.is_dir() and importlib.util.find_spec(LIBRARY) is None:
        raise GraderError(
            f"{LIBRARY} is not installed. It reads sums, limits and integrals in mathematical answers; without it, "
            f"equal answers would count as different. {REMEDY}"
        )


def _started() -> WorkerProcess:
    """A new worker that has passed the test question. Raises GraderError if it fails.

    It gets this package's folder, HOME, and our own path to search last. The working folder is not on the path, because
    latex2sympy2 imports a module called `gen`.
    """
    folders = [os.path.abspath(path) for path in sys.path if path]
    with suppress(importlib.metadata.PackageNotFoundError):
        folders.insert(0, str(importlib.metadata.distribution(LIBRARY).locate_file("")))
    worker = WorkerProcess([residual_worker.__file__, str(Path(__file__).parents[2]), str(HOME), *folders])
    if trouble := _trouble(worker):
        worker.close()
        raise GraderError(
            f"The process that reads answers with {LIBRARY} ({sys.executable}) {trouble}. Without that process, equal "
            f"answers would count as different. {REMEDY}"
        )
    return worker


def _trouble(worker: WorkerProcess) -> str | None:
    """What is wrong with a new worker; None if it answers the test question correctly."""
    try:
        hello: dict[str, str] = worker.read(START_SECONDS)
        if "error" in hello:
            return f"cannot import it: {hello['error']}"
        key = worker.ask([PROBE, START_SECONDS], START_SECONDS)
    except TimeoutError:
        return f"did not start and read {PROBE} within {START_SECONDS:.0f} s"
    except EOFError as end:
        return f"{end} before it read anything"
    return None if key == PROBE_KEY else f"reads {PROBE} as {key!r}, not as {PROBE_KEY!r}"
