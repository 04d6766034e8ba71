"""Runs queries on a prompt's database, in a separate process that is ended if it takes too long."""

import hashlib
import os
import threading
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from restrain_openrlhf.answers.kinds import sql_worker
from restrain_openrlhf.errors import DataError, GraderError
from restrain_openrlhf.machine.processes import WorkerProcess

START_SECONDS = 60.0
# Wall time, for a worker that waits for a disk. The worker's own limit is of CPU time.
PATIENCE_SECONDS = 120.0
# Results that are kept, each with its query and the script of its database.
MOST_KNOWN = 1 << 14


@dataclass(frozen=True)
class Database:
    """A SQLite file by its absolute path, or a script that makes a database in memory.

    `identity` changes with the time or size of the file.
    """

    path: str | None
    script: str
    identity: str = ""

    @classmethod
    def of_file(cls, path: Path) -> "Database":
        """The database in a file. Raises DataError if there is no such file."""
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            found = None
        if found is None or not path.is_file():
            raise DataError(f"{path}: no such SQLite file. Correct the prompts' column, or `answers.databases`.")
        return cls(str(path.absolute()), "", f"{path.absolute()} {found.st_mtime_ns} {found.st_size}")

    def digest(self) -> str | None:
        """The SHA-256 of the file; None for a script. Raises DataError if the file cannot be read."""
        return self.path and _digest(self.path, self.identity)


@lru_cache(maxsize=1024)
def _digest(path: str, _identity: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}). Correct the file's permissions.") from None


@dataclass(frozen=True)
class Query:
    """A query with its limits: instructions of SQLite's virtual machine, rows of its result, and CPU seconds."""

    text: str
    database: Database
    steps: int
    rows: int
    seconds: float


@dataclass(frozen=True)
class QueryResult:
    """Digests of a query's rows, in order and in any order, and the numbers of rows and of distinct rows."""

    in_order: str
    in_any_order: str
    rows: int
    different_rows: int


PROBE = Query("SELECT 1", Database(None, ""), steps=10_000, rows=1, seconds=10.0)


class Queries:
    """A process that runs queries, started when first needed and replaced when it ends. Threads may share it."""

    def __init__(self) -> None:
        self._worker: WorkerProcess | None = None
        self._lock = threading.Lock()
        self.result = lru_cache(maxsize=MOST_KNOWN)(self._asked)

    def _asked(self, query: Query) -> QueryResult | None:
        """The result of a query; None if it is refused, wrong, or exceeds the limits.

        Raises DataError if the database cannot be read, and GraderError if no process starts.
        """
        with self._lock:
            if self._worker is None or not self._worker.is_ready:
                self._worker = _started()
            try:
                reply = self._worker.ask(asdict(query), PATIENCE_SECONDS)
            except (TimeoutError, EOFError):
                return None
        if "unusable" in reply:
            named = query.database.path or f"that the script {query.database.script[:60]!r} makes"
            raise DataError(
                f"SQLite cannot use the database {named}: {reply['unusable']}. Correct the file, or the prompt's "
                "column `schema`."
            )
        return None if "refused" in reply else QueryResult(**reply)


def _started() -> WorkerProcess:
    """A new process that has passed a test query. Raises GraderError if it fails the test."""
    process = WorkerProcess([sql_worker.__file__])
    try:
        process.read(START_SECONDS)
        reply = process.ask(asdict(PROBE), START_SECONDS)
    except (TimeoutError, EOFError) as error:
        reply = str(error) or f"no reply within {START_SECONDS:.0f} s"
    if "in_order" not in reply:
        process.close()
        raise GraderError(
            f"The process that runs SQL queries failed on SELECT 1: {reply}. Start it by hand: `echo | python -P "
            f"{sql_worker.__file__}` should print that it is ready."
        )
    return process


QUERIES = Queries()
