"""Structured logs: one JSON object per line on stderr, without headers and without text of prompts and rollouts."""

import json
import logging
import sys
import time
import traceback

_LOG = logging.getLogger("restrain.service")
_LOG.setLevel(logging.INFO)


def log(event: str, level: int = logging.INFO, error: Exception | None = None, **values: object) -> None:
    """Write one event with named values; of an error its type and the line that raised it."""
    _LOG.log(level, event, exc_info=error, extra={"values": values})


class JsonLines(logging.Handler):
    """Our events, and Python's own records (uvicorn, asyncio) as the event `server`."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record to what sys.stderr is now. An exception's message is left out: it may quote a rollout."""
        other = {"event": "server", "logger": record.name, "message": record.getMessage().split("\n")[0]}
        event = {"event": record.msg, **record.values} if hasattr(record, "values") else other
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            frames = traceback.extract_tb(error.__traceback__)
            event |= {"exception": type(error).__name__, "where": [f"{at.filename}:{at.lineno}" for at in frames[-1:]]}
        line = {"time": round(time.time(), 3), "level": record.levelname.lower(), **event}
        print(json.dumps(line, default=str), file=sys.stderr, flush=True)
