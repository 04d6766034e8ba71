"""Runs one job in the sandbox: calls a function or runs tests; one line for each outcome.

Runs inside the sandbox, with only the standard library. The program shares this process, so it can report anything
about itself, but it can do nothing else.
"""

import ast
import builtins
import json
import os
import random
import signal
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from time import process_time
from typing import Any, Literal

from restrain_openrlhf.machine.sandbox import outcome

# Modules that programs import most often, loaded before the fork.
PRELOADED = ("bisect", "cmath", "copy", "dataclasses", "datetime", "functools", "hashlib", "heapq", "itertools",
             "operator", "statistics", "string", "typing")  # fmt: skip
for _module in PRELOADED:
    __import__(_module)

RETURNED, RAISED, OUT_OF_TIME = "=", "!raised", "!time"
MODULE = "program"
TICK_SECONDS = 0.05
# If so many first calls of a function run out of time, the others are not tried.
MAX_TIMEOUTS = 3


@dataclass(frozen=True)
class Job:
    """What one child process runs.

    `way` says what `inputs` are. For "calls" they are arguments of `entry`, each a literal `([positional], {named})`.
    For "tests" there is one, the source of tests, which may
    define `check(entry)`. `entry` is a function or `Class.method`. Seconds are CPU time, so that other work on the
    machine changes no outcome. `output_bytes` limits what is printed, and `memory_bytes` the address space.
    """

    source: str
    way: Literal["calls", "tests"]
    entry: str
    inputs: tuple[str, ...]
    call_seconds: float
    program_seconds: float
    memory_bytes: int
    output_bytes: int
    ignore_order: bool = False

    def as_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


class _OutOfTime(BaseException):
    """The CPU time of a call is over."""


def read_job(channel: int) -> Job:
    """The job from the channel, which has one line."""
    with os.fdopen(channel, "rb", closefd=False) as file:
        fields = json.loads(file.readline())
    return Job(**{**fields, "inputs": tuple(fields["inputs"])})


def prepare_streams() -> None:
    """Leave standard input empty and put the output into memory, before the process is restricted."""
    feed, prints, errors = (os.memfd_create(name) for name in ("input", "output", "errors"))
    for standard, file in enumerate((feed, prints, errors)):
        os.dup2(file, standard)
        os.close(file)
    words = {"encoding": "utf-8", "errors": "replace", "closefd": False}
    sys.stdin = open(0, **words)  # type: ignore[call-overload]  # noqa: SIM115
    sys.stdout, sys.stderr = (open(file, "w", **words) for file in (1, 2))  # type: ignore[call-overload]  # noqa: SIM115


def run(job: Job, channel: int) -> None:
    """Run all inputs. Each outcome is written at once, so a program that dies loses only later ones."""
    signal.signal(signal.SIGPROF, _expire)
    # A program does not have to wait really.
    time.sleep = lambda seconds: None
    # These are defined by the module `site`, which is not loaded.
    builtins.__dict__.update(exit=sys.exit, quit=sys.exit)
    clock = _Clock(job)
    if job.way == "calls":
        outcomes = _calls(job, clock)
    else:
        outcomes = iter([clock.outcome(lambda: _tests(job), job.program_seconds)])
    for each in outcomes:
        os.write(channel, each.encode() + b"\n")


class _Clock:
    """The CPU time that the program has left."""

    def __init__(self, job: Job) -> None:
        self.end = process_time() + job.program_seconds

    def outcome(self, act: Callable[[], str], seconds: float) -> str:
        """A digest of what the act returns, or its kind of failure, within `seconds` and the program's own limit."""
        left = min(seconds, self.end - process_time())
        if left <= 0:
            return OUT_OF_TIME
        try:
            try:
                # The timer repeats, because a program may catch the first exception.
                signal.setitimer(signal.ITIMER_PROF, left, TICK_SECONDS)
                return RETURNED + outcome.digest(act())
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
        except _OutOfTime:
            signal.setitimer(signal.ITIMER_PROF, 0)
            return OUT_OF_TIME
        except BaseException:  # noqa: BLE001 - a program may raise anything, SystemExit included
            return RAISED


def _expire(_signal: int, _frame: object) -> None:
    raise _OutOfTime


def _calls(job: Job, clock: _Clock) -> Iterator[str]:
    """The outcome of each call. If the program does not load, each has the same failure."""
    space: dict[str, Any] = {}
    loaded = clock.outcome(lambda: str(space.update(_execute(job.source))), job.program_seconds)
    if not loaded.startswith(RETURNED):
        yield from [loaded] * len(job.inputs)
        return
    seen: list[str] = []
    for text in job.inputs:
        # Do not wait again and again for a function that does not end.
        if seen == [OUT_OF_TIME] * MAX_TIMEOUTS:
            yield OUT_OF_TIME
        else:
            seen.append(clock.outcome(lambda text=text: _call(job, space, text), job.call_seconds))  # type: ignore[misc]
            yield seen[-1]


def _execute(source: str) -> dict[str, Any]:
    """Run a source as the module MODULE, and return its names. Dataclasses look themselves up in sys.modules."""
    module = sys.modules[MODULE] = types.ModuleType(MODULE)
    random.seed(0)
    exec(compile(source, MODULE, "exec"), module.__dict__)
    return module.__dict__


def _call(job: Job, space: Mapping[str, Any], text: str) -> str:
    """What a call returned; for None, what it printed and what its arguments have become."""
    positional, named = ast.literal_eval(text)
    owner, _, method = job.entry.rpartition(".")
    function = getattr(space[owner](), method) if owner else space[method]
    random.seed(0)
    _take_printed()
    value = function(*positional, **named)
    if value is not None:
        return outcome.returned(value, job.ignore_order)
    left = outcome.returned([*positional, named], job.ignore_order)
    return f"None {left} {outcome.printed(_take_printed(), job.ignore_order)}"


def _tests(job: Job) -> str:
    """`passed`; the tests raise if they fail."""
    space = _execute(job.source)
    exec(compile(job.inputs[0], "tests", "exec"), space)
    if "check" in space and job.entry:
        owner, _, method = job.entry.rpartition(".")
        space["check"](getattr(space[owner](), method) if owner else space[method])
    return "passed"


def _take_printed() -> str:
    sys.stdout.flush()
    text = os.pread(1, os.fstat(1).st_size, 0).decode("utf-8", "replace")
    os.ftruncate(1, 0)
    os.lseek(1, 0, os.SEEK_SET)
    return text
