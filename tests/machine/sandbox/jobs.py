"""Jobs for the sandbox, and where it is not there."""

import shutil

import pytest

from restrain_openrlhf.machine.sandbox.pool import run_all
from restrain_openrlhf.machine.sandbox.program import Job

NO_BUBBLEWRAP = pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bwrap: apt-get install bubblewrap")
CONFINEMENTS = [pytest.param("bubblewrap", marks=NO_BUBBLEWRAP), "container"]
SECONDS = 300


def job(source, inputs=("([2], {})",), way="calls", entry="f", **changed):
    """Limits are small, so that what never ends costs little."""
    limits = {"call_seconds": 0.1, "program_seconds": 1.0, "memory_bytes": 1 << 29, "output_bytes": 1 << 16}
    return Job(source, way, entry, tuple(inputs), **{**limits, **changed})


def outcomes(*jobs, confinement="container"):
    return run_all(jobs, confinement, SECONDS)


def returning(value):
    """A program without a trick that returns this value: what a hostile one's outcome is compared with."""
    return job(f"def f(x):\n    return {value!r}\n")
