"""Runs our own commands in processes of their own, so that each vLLM engine frees its memory when it is done."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from restrain_openrlhf.errors import RunError

MODULE = "restrain_openrlhf.cli.main"


def run_command(words: Sequence[str], log: Path) -> None:
    """`restrain WORDS...`, its output appended to `log`. Raises RunError with the last lines when it fails."""
    with log.open("ab") as file:
        ended = subprocess.run(
            [sys.executable, "-m", MODULE, *words],
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if ended.returncode != 0:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-12:])
        raise RunError(f"`restrain {words[0]}` stopped with status {ended.returncode}.\n{tail}\nLog: {log}")
