"""math-verify in a process of its own, with a deadline for every response.

It cannot share an environment with latex2sympy2, which is pinned to another antlr4: it has a folder of its own.
"""

import json
import select
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.errors import ConfigError, RunError
from restrain_openrlhf.evaluation import math_verify_worker

NAME = "math-verify"
# As in requirements/math-verify.txt; sympy and mpmath are the environment's.
PACKAGES = ("math-verify==0.9.0", "latex2sympy2-extended==1.11.0", "antlr4-python3-runtime==4.13.2")
HOME = Path(sys.prefix) / NAME
START_SECONDS = 60.0
DEADLINE_SECONDS = 10.0


class Verdict(BaseModel):
    """math-verify's reading of gold and of a response (None: nothing read), and whether it calls them equal.

    A response that takes too long, or ends the process, is wrong and `given_up`.
    """

    model_config = ConfigDict(frozen=True)

    gold: str | None = None
    answer: str | None = None
    correct: bool = False
    given_up: bool = False


class MathVerify:
    """One worker, started when entered and replaced when it is killed; a context manager for one thread."""

    def __init__(self, folder: Path = HOME, deadline: float = DEADLINE_SECONDS) -> None:
        self.folder, self.deadline = folder, deadline
        self.version = ""

    def __enter__(self) -> Self:
        """Raises ConfigError where math-verify cannot be imported."""
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def grade(self, response: str, gold: str) -> Verdict:
        """One response's verdict. Total on any text."""
        reply = self._asked(json.dumps([gold, response]))
        if reply is None:
            self._end()
            self._start()
            return Verdict(given_up=True)
        return Verdict.model_validate(reply)

    def _asked(self, question: str) -> dict[str, Any] | None:
        assert self._worker.stdin
        try:
            self._worker.stdin.write(question + "\n")
            self._worker.stdin.flush()
        except BrokenPipeError:
            return None
        return self._line(self.deadline)

    def _line(self, seconds: float) -> dict[str, Any] | None:
        """The next line; None if it does not come in time, or the worker has ended."""
        assert self._worker.stdout
        ready, _, _ = select.select([self._worker.stdout], [], [], seconds)
        line = self._worker.stdout.readline() if ready else ""
        return dict(json.loads(line)) if line else None

    def _start(self) -> None:
        pipe = subprocess.PIPE
        command = [sys.executable, "-I", math_verify_worker.__file__, str(self.folder)]
        self._worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        hello = self._line(START_SECONDS)
        if hello is None:
            self._end()
            raise RunError(f"{NAME} in {self.folder} does not start. Install it again, into an empty folder.")
        if "error" in hello:
            self._end()
            raise ConfigError(
                f"--second-grader {NAME}: is not installed ({hello['error']}). It needs another antlr4 than "
                f"latex2sympy2 does, so it has a folder of its own: `{sys.executable} -m pip install --no-deps "
                f"--target {self.folder} {' '.join(PACKAGES)}`."
            )
        self.version = str(hello["version"])

    def _end(self) -> None:
        self._worker.kill()
        self._worker.wait()
        for stream in (self._worker.stdin, self._worker.stdout):
            assert stream
            try:
                stream.close()
            except BrokenPipeError:
                continue


def second_grader(word: str) -> MathVerify:
    """`math-verify`, or `math-verify=FOLDER`. Raises ConfigError for another name."""
    name, equals, folder = word.partition("=")
    if name != NAME or (equals and not folder):
        raise ConfigError(f"--second-grader {word!r}: is no grader. Known: {NAME}, or {NAME}=FOLDER where it lies.")
    return MathVerify(Path(folder)) if equals else MathVerify()
