"""Where output goes: what may be written to, and files that appear under their name once they are whole."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from restrain_openrlhf.errors import DataError

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


@contextmanager
def whole_file(path: Path) -> Iterator[IO[str]]:
    """A file that takes `path`'s place once it is complete; two writers do not meet, whoever is last stays.

    Behind a symbolic link it is the link's target, and the link stays. Raises DataError as `output_file`.
    """
    target = output_file(path)
    # Not the process's number: in pods that share a volume it is often 1.
    partial = target.with_name(f"{target.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def output_file(path: Path) -> Path:
    """The file that `path` names, behind symbolic links; it need not be there.

    Raises DataError where it is no regular file: to replace a device or a pipe would destroy it. Also where its folder
    could not be written to.
    """
    target = Path(os.path.realpath(path))
    behind = "" if target == path.absolute() else f" ({target})"
    kind = _kind(target)
    if kind is not None and kind != stat.S_IFREG:
        what = KINDS.get(kind, "a symbolic link to itself")
        raise DataError(f"{path}{behind}: is {what}, not a file that can be written. Name a file.")
    if kind == stat.S_IFREG and not os.access(target, os.W_OK):
        raise DataError(f"{path}{behind}: is a file that may not be written. Name another.")
    _refuse_unwritable(path, target.parent)
    return target


def output_folder(path: Path) -> Path:
    """`path`, a folder that is there or can be made. Raises DataError where it is neither, or may not be written to."""
    target = Path(os.path.realpath(path))
    _refuse_unwritable(path, target)
    return path


def _refuse_unwritable(path: Path, folder: Path) -> None:
    """Of the nearest folder above that is there, which gets what is missing below."""
    there = next(each for each in (folder, *folder.parents) if _kind(each) is not None)
    if not there.is_dir():
        raise DataError(f"{path}: {there} is not a folder, and nothing can be written below it. Name another place.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise DataError(f"{path}: the folder {there} may not be written to by this user. Name another place.")


def _kind(path: Path) -> int | None:
    """As in the file's mode; None for what is not there. Raises DataError where this user may not look."""
    try:
        return stat.S_IFMT(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DataError(f"{path}: cannot be looked at ({error.strerror}). Name another place.") from None
