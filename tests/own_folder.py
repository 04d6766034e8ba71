"""Packages that the environment lacks, or has in another version, in a folder of their own, first on the path."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import ROOT


def install(folder: Path, words: Sequence[str]) -> None:
    """Install what pip's `words` name in a folder, once, and nothing that it requires. Skips where pip cannot."""
    if folder.is_dir():
        return
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    options = ["install", "--quiet", "--no-deps", "--no-compile", "--target", str(partial)]
    done = subprocess.run([sys.executable, "-m", "pip", *options, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"needs {' '.join(words)} from the package index: {done.stderr.strip()[-200:]}")
    partial.rename(folder)


def python_with(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the packages of a folder, and everything else as it is here."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
