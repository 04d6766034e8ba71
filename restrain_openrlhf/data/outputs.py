"""Where output goes: what may be written to, and files that appear under their name once they are whole."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from restrain_openrlhf.errors import DataError

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}
STANDARD_OUTPUT = 1


@contextmanager
def whole_file(path: Path) -> Iterator[IO[str]]:
    """A file that takes `path`'s place once it is complete; two writers do not meet, whoever is last stays.

    Behind a symbolic link it is the link's target, and the link stays. Raises DataError as `output_file`.
    """
    with replacing(output_file(path)) as file:
        yield file


@contextmanager
def replacing(target: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """A file beside `target` that takes its place once it is complete. Raises OSError where the disk is full."""
    # Not the process's number: in pods that share a volume it is often 1.
    partial = target.with_name(f"{target.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open(mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def output_file(path: Path) -> Path:
    """The file that `path` names, behind symbolic links; it need not be there.

    Raises DataError where it is no regular file: to replace a device or a pipe would destroy it. Also where its folder
    could not be written to, and for a file that the shell writes this command's own output to.
    """
    target = Path(os.path.realpath(path))
    found = _stat(path)
    if found is not None:
        _refuse_special(f"{path}" if target == path.absolute() else f"{path} ({target})", found)
        if not os.access(target, os.W_OK):
            raise DataError(f"{path}: this user may not write to this file. Name another.")
    _refuse_unwritable(path, target.parent)
    return target


def _refuse_special(named: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        what = KINDS.get(stat.S_IFMT(found.st_mode), "a symbolic link to itself")
        raise DataError(f"{named}: is {what}, not a file that can be written. Name a file.")
    with suppress(OSError):  # a process may have none
        if os.path.samestat(found, os.fstat(STANDARD_OUTPUT)):
            raise DataError(
                f"{named}: the shell writes this command's own output to this file; replacing the file would lose "
                "that output. Name another."
            )


def output_folder(path: Path) -> Path:
    """The folder that `path` names, behind symbolic links; it is there or can be made.

    Raises DataError where it is something else, or may not be written to, and for a link to what is not there.
    """
    target = Path(os.path.realpath(path))
    if path.is_symlink() and not target.exists():
        raise DataError(
            f"{path}: is a symbolic link to {target}, which does not exist. Create that folder, or remove the link."
        )
    _refuse_unwritable(path, target)
    return target


def _refuse_unwritable(path: Path, folder: Path) -> None:
    """Of the nearest folder above that is there, which gets what is missing below."""
    there = next(each for each in (folder, *folder.parents) if _stat(each) is not None)
    if not there.is_dir():
        raise DataError(f"{path}: {there} is not a folder, so nothing can be written below it. Name another place.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise DataError(f"{path}: this user may not write to the folder {there}. Name another place.")


def _stat(path: Path) -> os.stat_result | None:
    """Of what is behind links, and of a link that leads to itself; None for what is not there.

    The kernel follows /dev/stdout to a pipe, which has no path. Raises DataError where this user may not look.
    """
    leads_to_itself = os.path.islink(os.path.realpath(path)) and not path.exists()
    try:
        return path.lstat() if leads_to_itself else path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DataError(f"{path}: cannot be opened ({error.strerror}). Name another place.") from None
