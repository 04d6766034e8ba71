"""Other OpenRLHF releases than the installed one: each in a folder of its own, made once, first on a process's path."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from restrain_openrlhf.machine.host_releases import NEWEST, RELEASES, Way
from tests.conftest import ROOT

FOLDERS = ROOT / "build" / "openrlhf"


def others(way: Way, but: Way | None = None) -> list[str]:
    """The releases on which the way works and `but` does not, the newest left out: all other tests run on that."""
    return [
        name
        for name, release in RELEASES.items()
        if release is not NEWEST and way in release.ways and but not in release.ways
    ]


def folder_of(release: str) -> Path:
    """The release without anything that it requires."""
    folder = FOLDERS / release
    if not folder.is_dir():
        partial = FOLDERS / f"{release}.{os.getpid()}.partial"
        words = ["install", "--quiet", "--no-deps", "--no-compile", "--target", str(partial), f"openrlhf=={release}"]
        done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"needs openrlhf {release} from the package index: {done.stderr.strip()[-200:]}")
        # Releases bring their tests as a package of that name, which would stand in the way of this project's.
        shutil.rmtree(partial / "tests", ignore_errors=True)
        partial.rename(folder)
    return folder


def python_on(release: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the release's OpenRLHF, and everything else as it is here."""
    return python_with(folder_of(release), *words)


def python_with(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the OpenRLHF of a folder, and everything else as it is here."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )
