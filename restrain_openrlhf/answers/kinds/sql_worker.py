"""The process behind sql_database.py: runs queries on SQLite, read-only and within limits, one JSON line each.

It is the script of a WorkerProcess (machine/processes.py) and uses only the standard library. It returns digests,
never rows.
"""

import hashlib
import json
import math
import os
import resource
import sqlite3
import sys
import time
from contextlib import closing
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

MEMORY_BYTES = 1 << 30
OPEN_DATABASES = 16
# The largest text or blob, and the longest pattern of LIKE and GLOB.
MAX_VALUE_BYTES, MAX_PATTERN_BYTES = 1 << 20, 1000
STEPS_A_LOOK = 1000
# Significant digits: to decide whether a float is a whole number, and to write one that is not. They are few enough
# that a sum does not depend on the order of its terms.
EXACT_DIGITS, DIGITS = 12, 6
# The time of 'now', fixed so that results are the same in every process and run.
CLOCK = "2025-01-01 12:00:00"
CLOCKED = ("date", "time", "datetime", "julianday", "unixepoch", "strftime")
WORDS_FOR_NOW = {"current_date": "date", "current_time": "time", "current_timestamp": "datetime"}
# Functions without side effects whose results depend only on their arguments.
FUNCTIONS = frozenset(
    """
    abs avg ceil ceiling char coalesce concat concat_ws count cume_dist dense_rank exp first_value floor format glob
    group_concat hex ifnull iif instr json json_array json_array_length json_each json_extract json_group_array
    json_group_object json_insert json_object json_patch json_quote json_remove json_replace json_set json_tree
    json_type json_valid lag last_value lead length like likelihood likely ln log log10 log2 lower ltrim max min mod
    nth_value ntile nullif octet_length percent_rank pi pow power printf quote rank replace round row_number rtrim sign
    soundex sqrt string_agg substr substring sum total trim trunc typeof unhex unicode unlikely upper zeroblob
    acos acosh asin asinh atan atan2 atanh cos cosh degrees radians sin sinh tan tanh timediff -> ->>
    match bm25 highlight snippet
    """.split()
) | {*CLOCKED, *WORDS_FOR_NOW}
ACTIONS = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})


# What SQLite and Python raise for a database or query that cannot be used.
ERRORS = (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError)


class Steps:
    """How many instructions of SQLite's virtual machine a query may still take; the same on every computer."""

    left = 0

    def look(self) -> bool:
        """Called every STEPS_A_LOOK instructions; True ends the query."""
        self.left -= STEPS_A_LOOK
        return self.left < 0


STEPS = Steps()


@lru_cache(maxsize=OPEN_DATABASES)
def connection(identity: str, path: str | None, script: str) -> sqlite3.Connection:
    """The database with this identity, for reading only. Raises an error of ERRORS if SQLite cannot open it."""
    place = ":memory:" if path is None else f"{Path(path).as_uri()}?mode=ro"
    opened = sqlite3.connect(place, uri=path is not None, isolation_level=None)
    opened.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
    opened.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    opened.set_progress_handler(STEPS.look, STEPS_A_LOOK)
    opened.executescript(script)
    opened.execute("SELECT count(*) FROM sqlite_master").fetchone()
    restrict(opened)
    return opened


def restrict(opened: sqlite3.Connection) -> None:
    """Allow only reading, safe functions and bounded values from now on, and stop the clock."""
    opened.executescript("PRAGMA query_only = ON; PRAGMA temp_store = MEMORY;")
    opened.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    opened.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MAX_PATTERN_BYTES)
    for name in CLOCKED:
        opened.create_function(name, -1, partial(at_the_clock, name), deterministic=True)
    for name, function in WORDS_FOR_NOW.items():
        opened.create_function(name, 0, partial(at_the_clock, function), deterministic=True)
    opened.set_authorizer(permission)


def permission(action: int, _table: str | None, function: str | None, *_: str | None) -> int:
    """SQLite's authorizer, which decides whether a query may take an action."""
    allowed = action in ACTIONS or (action == sqlite3.SQLITE_FUNCTION and str(function).lower() in FUNCTIONS)
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


_PLAIN = sqlite3.connect(":memory:")


def at_the_clock(name: str, *arguments: Any) -> Any:
    """SQLite's own function of date or time, with CLOCK as 'now', also if no time is given."""
    given = [CLOCK if isinstance(each, str) and each.lower() == "now" else each for each in arguments]
    if len(given) == (name == "strftime"):
        given.append(CLOCK)
    return _PLAIN.execute(f"SELECT {name}({', '.join('?' * len(given))})", given).fetchone()[0]


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """The digests of a query's rows, or else why the query is `refused` or its database `unusable`."""
    STEPS.left = question["steps"]
    end_after(question["seconds"])
    try:
        opened = connection(**question["database"])
    except ERRORS as error:
        return {"unusable": str(error) or type(error).__name__}
    try:
        return digests(opened, question["text"], question["rows"])
    except ERRORS as error:
        return {"refused": f"{type(error).__name__}: {error}"}


def end_after(seconds: float) -> None:
    """Let the system end this process after this number of further CPU seconds, rounded up.

    A single slow instruction never calls `Steps.look`. CPU time does not depend on other work of the machine.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(
        resource.RLIMIT_CPU, (math.ceil(used.ru_utime + used.ru_stime + seconds), resource.RLIM_INFINITY)
    )


def digests(database: sqlite3.Connection, query: str, most_rows: int) -> dict[str, Any]:
    """Digests of the rows, in order and in any order. Both depend on the number of columns too."""
    with closing(database.execute(query)) as cursor:
        if cursor.description is None:
            return {"refused": "It is no query."}
        columns = str(len(cursor.description))
        rows: list[bytes] = []
        for row in cursor:
            text = json.dumps([text_of(value) for value in row])
            rows.append(hashlib.sha256(text.encode()).digest())
            if len(rows) > most_rows:
                return {"refused": f"It has more than {most_rows} rows."}
    return {
        "in_order": digest(columns, rows),
        "in_any_order": digest(columns, sorted(rows)),
        "rows": len(rows),
        "different_rows": len(set(rows)),
    }


def digest(columns: str, rows: list[bytes]) -> str:
    return hashlib.sha256(b"".join([columns.encode(), b" ", *rows])).hexdigest()


def text_of(value: Any) -> str | None:
    """A value as text. Numbers of both types are compared by value; text and blobs never equal numbers."""
    match value:
        case float():
            return number(value)
        case int():
            return f"{value}"
        case bytes():
            return f"x {value.hex()}"
        case str():
            return f"t {value}"
    return None


def number(value: float) -> str:
    """A float as text: a whole number as such, others with 6 digits. 3.0 is 3, and 0.1 + 0.2 is 0.3."""
    exact = f"{value:.{EXACT_DIGITS}g}"
    if float(exact).is_integer():
        return f"{int(float(exact))}"
    return f"{value:.{DIGITS}g}"


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["TZ"] = "UTC"
    time.tzset()
    print(json.dumps({"ready": sqlite3.sqlite_version}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
