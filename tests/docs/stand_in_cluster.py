"""Stands for kubectl, helm and pip on PATH: writes down what it is asked, and answers as a cluster that is well."""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path


def main(program: str, words: list[str]) -> None:
    """One call; what was called and applied is kept beside the programs."""
    first, _, rest = os.environ["PATH"].partition(":")
    if program == "kubectl" and words[0] in ("kustomize", "version"):
        rendered(words, rest)
    with Path(first, "calls").open("a") as calls:
        calls.write(shlex.join([program, *words]) + "\n")
    if program == "pip" and not Path(words[-1], "pyproject.toml").is_file():
        sys.exit(f"{words[-1]}: no project here")
    applied = Path(first, "applied")
    if words[0] == "apply":
        with applied.open("a") as file:
            file.write(Path(words[-1]).read_text() + "\n")
    elif "get" in words:
        sys.stdout.write(answer(words, applied.read_text() if applied.exists() else ""))


def rendered(words: list[str], path: str) -> None:
    """Kustomize is no question to a cluster: the real program answers it."""
    real = shutil.which("kubectl", path=path)
    if real is None:
        sys.exit("kubectl is not on PATH")
    os.execve(real, ["kubectl", *words], {**os.environ, "PATH": path})


def answer(words: list[str], applied: str) -> str:
    """Whatever was applied is there, and has ended well."""
    if "namespace" in words:
        return "restrain"
    asked = next((re.fullmatch(r"(job|rayjob)/(.+)", word) for word in words if "job/" in word), None)
    if asked is None or not re.search(rf"^  name: {re.escape(asked[2])}$", applied, re.MULTILINE):
        return ""
    return f"{asked[2]} Complete" if asked[1] == "job" else f"{asked[2]} SUCCEEDED Complete"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
