"""Structured logs: one JSON object per line on stderr, without headers and without text of prompts and rollouts."""

import json
import logging
import sys
import time
import traceback
from dataclasses import dataclass
from typing import TextIO


@dataclass(frozen=True)
class Log:
    """Writes events with named values; `replica` stands in every line."""

    replica: str
    stream: TextIO = sys.stderr

    def info(self, event: str, **values: object) -> None:
        """Something that is as it should be."""
        self._write("info", event, values)

    def warning(self, event: str, **values: object) -> None:
        """Something an operator may want to look at."""
        self._write("warning", event, values)

    def error(self, event: str, **values: object) -> None:
        """Something that is broken."""
        self._write("error", event, values)

    def _write(self, level: str, event: str, values: dict[str, object]) -> None:
        line = {"time": round(time.time(), 3), "level": level, "event": event, "replica": self.replica, **values}
        print(json.dumps(line, default=str), file=self.stream, flush=True)


def where(error: BaseException) -> str:
    """The line of code that raised it; the message is left out, because it may quote a rollout."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}:{frame.lineno} in {frame.name}"


class Forward(logging.Handler):
    """Python's own log records (uvicorn, asyncio) as our lines: a traceback is reduced to the exception's type."""

    def __init__(self, log: Log) -> None:
        super().__init__(level=logging.INFO)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record. Messages come with placeholders filled, exceptions without their text."""
        kind = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else None
        write = self.log.error if record.levelno >= logging.ERROR else self.log.info
        write("server", logger=record.name, message=record.getMessage().split("\n")[0], exception=kind)
