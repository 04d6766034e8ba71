"""Runs a command in this process, as its console script does, and keeps the exit status and what it printed."""

import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from unittest.mock import patch

from restrain_openrlhf.commands import main as restrain_cli
from tests.conftest import ROOT


@dataclass(frozen=True)
class Done:
    """How a command ended. An exception that a user would have seen as a traceback is raised instead."""

    returncode: int
    stdout: str
    stderr: str


def call(script: Callable[[], None], *words: object, cwd: Path = ROOT) -> Done:
    """`script` is what the console script calls; `words` stand behind its name."""
    out, err, status = StringIO(), StringIO(), 0
    with (
        patch.object(sys, "argv", ["command", *map(str, words)]),
        chdir(cwd),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            script()
        except SystemExit as end:
            # As Python itself does: what is no status is printed, and the status is 1.
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
            err.write(f"{end.code}\n" if isinstance(end.code, str) else "")
    return Done(status, out.getvalue(), err.getvalue())


def restrain(*words: object, cwd: Path = ROOT) -> Done:
    """`restrain WORDS...`."""
    return call(restrain_cli.main, *words, cwd=cwd)


def refused(*words: object) -> str:
    """What `restrain WORDS...` says when it refuses them: status 2."""
    done = restrain(*words)
    assert done.returncode == 2, done.stderr
    return done.stderr
