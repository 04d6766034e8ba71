"""Stands for kubectl, helm and pip on PATH: writes down what it is asked, and answers as a cluster that is well."""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

PROGRAM, *WORDS = sys.argv[1:]
HERE = Path(os.environ["PATH"].split(":")[0])


def rendered() -> None:
    """Kustomize is no question to a cluster: the real program answers it."""
    path = os.environ["PATH"].partition(":")[2]
    real = shutil.which("kubectl", path=path)
    if real is None:
        sys.exit("kubectl is not on PATH")
    os.execve(real, ["kubectl", *WORDS], {**os.environ, "PATH": path})


def answer() -> str:
    """Whatever was applied is there, and has ended well."""
    if "namespace" in WORDS:
        return "restrain"
    asked = next((re.fullmatch(r"(job|rayjob)/(.+)", word) for word in WORDS if "job/" in word), None)
    applied = (HERE / "applied").read_text() if (HERE / "applied").exists() else ""
    if asked is None or not re.search(rf"^  name: {re.escape(asked[2])}$", applied, re.MULTILINE):
        return ""
    return f"{asked[2]} Complete" if asked[1] == "job" else f"{asked[2]} SUCCEEDED Complete"


def main() -> None:
    if PROGRAM == "kubectl" and WORDS[0] in ("kustomize", "version"):
        rendered()
    with (HERE / "calls").open("a") as calls:
        calls.write(shlex.join([PROGRAM, *WORDS]) + "\n")
    if PROGRAM == "pip" and not Path(WORDS[-1], "pyproject.toml").is_file():
        sys.exit(f"{WORDS[-1]}: no project here")
    if WORDS[0] == "apply":
        with (HERE / "applied").open("a") as applied:
            applied.write(Path(WORDS[-1]).read_text() + "\n")
    elif "get" in WORDS:
        sys.stdout.write(answer())


if __name__ == "__main__":
    main()
