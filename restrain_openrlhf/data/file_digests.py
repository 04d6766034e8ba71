"""SHA-256 of whole files, kept in the user's cache: a model's weights are read once, and again once they change."""

import hashlib
import os
import re
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from restrain_openrlhf.data.outputs import whole_file

# Below it a file is read sooner than a cache would be worth its entry.
CACHED_FROM = 8 << 20
# A file that was written to so short a time ago may be written to again within the same tick of its file system's
# clock, so that nothing would tell the two contents apart.
SETTLED_SECONDS = 2.0
READERS = 4
DIGEST = re.compile(r"[0-9a-f]{64}")


def file_digests(files: Iterable[Path]) -> dict[Path, str]:
    """As `file_digest`, of several files at the same time."""
    paths = list(files)
    with ThreadPoolExecutor(READERS) as readers:
        return dict(zip(paths, readers.map(file_digest, paths), strict=True))


def file_digest(path: Path) -> str:
    """SHA-256 of the whole file, in hex, as sha256sum prints it. Raises OSError where it cannot be read.

    A large file's is kept under its path, size, times of change and inode. An entry that is damaged is made again.
    """
    before = _state(path)
    entry = _entry(path, before)
    kept = _kept(entry) if entry is not None else None
    if kept is not None:
        return kept
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if entry is not None and _state(path) == before and _has_settled(path):
        _keep(entry, found)
    return found


def cache_folder() -> Path | None:
    """Where digests are kept, a small file each; None for a user without a home."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base, "restrain-openrlhf", "digests") if os.path.isabs(base) else None


def _state(path: Path) -> tuple[int, ...]:
    """What changes with a file's content. The time of change of the inode cannot be set back, as the other can."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev


def _entry(path: Path, state: tuple[int, ...]) -> Path | None:
    folder = cache_folder()
    if folder is None or state[0] < CACHED_FROM:
        return None
    key = "\n".join([str(path.resolve()), *map(str, state)])
    return folder / hashlib.sha256(key.encode("utf-8", errors="surrogateescape")).hexdigest()


def _kept(entry: Path) -> str | None:
    try:
        text = entry.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text if DIGEST.fullmatch(text) else None


def _has_settled(path: Path) -> bool:
    found = path.stat()
    return time.time() - max(found.st_mtime, found.st_ctime) > SETTLED_SECONDS


def _keep(entry: Path, digest: str) -> None:
    # Without a cache that can be written, a digest is as right and costs its time again.
    with suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(entry) as file:
            file.write(digest + "\n")
