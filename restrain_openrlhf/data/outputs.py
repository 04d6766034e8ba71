"""Where output goes: what may be written to, and files that appear under their name once they are whole."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    could not be written to, and for a file that the shell writes this command's own output to.
    """
    target = Path(os.path.realpath(path))
    behind = "" if target == path.absolute() else f" ({target})"
    found = _stat(path)
    if found is not None and not stat.S_ISREG(found.st_mode):
        what = KINDS.get(stat.S_IFMT(found.st_mode), "a symbolic link to itself")
        raise DataError(f"{path}{behind}: is {what}, not a file that can be written. Name a file.")
    if found is not None and (found.st_dev, found.st_ino) in _standard_streams():
        raise DataError(
            f"{path}{behind}: is the file that the shell writes this command's own output to; replacing it would lose "
            "what it holds. Name another."
        )
    if found is not None and not os.access(target, os.W_OK):
        raise DataError(f"{path}{behind}: is a file that may not be written. Name another.")
    _refuse_unwritable(path, target.parent)
    return target


def output_folder(path: Path) -> Path:
    """The folder that `path` names, behind symbolic links; it is there or can be made.

    Raises DataError where it is something else, or may not be written to, and for a link to what is not there.
    """
    target = Path(os.path.realpath(path))
    if path.is_symlink() and not target.exists():
        raise DataError(f"{path}: is a symbolic link to {target}, which is not there. Make that folder, or remove it.")
    _refuse_unwritable(path, target)
    return target


def _refuse_unwritable(path: Path, folder: Path) -> None:
    """Of the nearest folder above that is there, which gets what is missing below."""
    there = next(each for each in (folder, *folder.parents) if _stat(each) is not None)
    if not there.is_dir():
        raise DataError(f"{path}: {there} is not a folder, and nothing can be written below it. Name another place.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise DataError(f"{path}: the folder {there} may not be written to by this user. Name another place.")


def _stat(path: Path) -> os.stat_result | None:
    """Of what is behind links, and of a link that leads to itself; None for what is not there.

    The kernel follows /dev/stdout to a pipe, which has no path. Raises DataError where this user may not look.
    """
    try:
        return path.lstat() if _leads_to_itself(path) else path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DataError(f"{path}: cannot be looked at ({error.strerror}). Name another place.") from None


def _leads_to_itself(path: Path) -> bool:
    return os.path.islink(os.path.realpath(path)) and not path.exists()


def _standard_streams() -> set[tuple[int, int]]:
    """Device and inode of standard input, output and error, of those that are open."""
    found = set()
    for number in (0, 1, 2):
        with suppress(OSError):
            made = os.fstat(number)
            found.add((made.st_dev, made.st_ino))
    return found
