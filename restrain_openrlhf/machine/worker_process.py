"""Runs a library that may hang, die or take all memory in its own process; questions and answers are JSON lines."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

# How long to wait for the status of a process that has closed its output.
END_SECONDS = 5.0


class WorkerProcess:
    """A Python script that is killed if it does not answer in time. Its first line is a greeting, to be `read`.

    With -P and without PYTHONPATH, files of the working folder are not on the script's module path.
    """

    def __init__(self, script_and_arguments: Sequence[str]) -> None:
        pipe = subprocess.PIPE
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        words = [sys.executable, "-P", *script_and_arguments]
        self.process = subprocess.Popen(
            words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        self._owner = os.getpid()

    @property
    def is_ready(self) -> bool:
        """Whether the script runs and was started by this process; a forked child must not share its pipes."""
        return self._owner == os.getpid() and self.process.poll() is None

    def ask(self, question: object, seconds: float) -> Any:
        """The answer to a question. Raises TimeoutError and EOFError as `read` does."""
        return self._line(json.dumps(question) + "\n", seconds)

    def read(self, seconds: float) -> Any:
        """The next line. Raises TimeoutError if it does not come in time, and EOFError if the process has ended.

        After any exception, including one such as KeyboardInterrupt, the process has been ended.
        """
        return self._line("", seconds)

    def _line(self, question: str, seconds: float) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        try:
            # A process that has ended is noticed when its answer is read.
            with suppress(BrokenPipeError):
                self.process.stdin.write(question)
                self.process.stdin.flush()
            ready, _, _ = select.select([self.process.stdout], [], [], seconds)
            if not ready:
                raise TimeoutError
            if line := self.process.stdout.readline():
                return json.loads(line)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(END_SECONDS)
            self.process.kill()
            raise EOFError(f"ended with status {self.process.wait()}")
        except BaseException:
            # An unread answer would be taken for that of the next question.
            self.close()
            raise

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream
            with suppress(BrokenPipeError):
                stream.close()
