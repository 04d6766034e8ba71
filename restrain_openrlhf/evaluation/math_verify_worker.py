"""The process behind math_verify.py: grades by math-verify, a JSON line each; imports nothing of ours.

The script of an machine/worker_process.py; its argument is the folder that holds math-verify.
"""

import json
import resource
import sys
from importlib import import_module
from importlib.metadata import version
from typing import Any

MEMORY_BYTES = 4 << 30


def main(folder: str) -> None:
    """Say the version or what failed, then serve until the input ends."""
    sys.path.insert(0, folder)
    out = sys.stdout
    sys.stdout = sys.stderr
    try:
        math_verify = import_module("math_verify")
    except ImportError as error:
        print(json.dumps({"error": str(error)}), file=out, flush=True)
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    print(json.dumps({"version": version("math-verify")}), file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(graded(math_verify, *json.loads(line))), file=out, flush=True)


def graded(library: Any, gold: str, response: str) -> dict[str, str | bool | None]:
    """The library's defaults but for its signals' time limit: the reader of this line has a limit of its own."""
    wanted = library.parse(rf"\boxed{{{gold}}}", parsing_timeout=None)
    found = library.parse(response, parsing_timeout=None)
    correct = bool(library.verify(wanted, found, timeout_seconds=None))
    return {"gold": _text(wanted), "answer": _text(found), "correct": correct}


def _text(parsed: list[Any]) -> str | None:
    """What was read, as text: the library puts the text that it parsed behind its value."""
    return str(parsed[-1]) if parsed else None


if __name__ == "__main__":
    main(sys.argv[1])
