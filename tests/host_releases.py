"""Other OpenRLHF releases than the installed one: each in a folder of its own, made once, first on a process's path."""

import shutil
import subprocess
from pathlib import Path

from restrain_openrlhf.machine.host_releases import NEWEST, RELEASES, Way
from tests.conftest import ROOT
from tests.own_folder import install, python_with

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
    install(folder, [f"openrlhf=={release}"])
    # Releases bring their tests as a package of that name, which would stand in the way of this project's.
    shutil.rmtree(folder / "tests", ignore_errors=True)
    return folder


def python_on(release: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the release's OpenRLHF, and everything else as it is here."""
    return python_with(folder_of(release), *words)
