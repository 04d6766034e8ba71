"""Output files and folders: whether they can be written, and files that get their name once they are whole."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from restrain_openrlhf.errors import FULL_DISK, DataError


@contextmanager
def whole_file(path: Path) -> Iterator[IO[str]]:
    """A file that replaces `path` once it is complete. Of two writers at the same time, the later one wins.

    The folder is made. For a symbolic link, the link's target is replaced and the link stays. Raises DataError; see
    `output_file`.
    """
    target = output_file(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as file:
        yield file


def write_whole(path: Path, text: str) -> None:
    """Write a text as a `whole_file`."""
    with whole_file(path) as file:
        file.write(text)


@contextmanager
def replacing(target: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """A file beside `target` that replaces it once it is complete. Raises OSError if the disk is full."""
    # The process's number would not do: in pods that share a volume, several processes have the number 1.
    partial = target.with_name(f"{target.name}.{secrets.token_hex(4)}.partial")
    try:
        with _named_if_full(target), partial.open(mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def appended(path: Path) -> Iterator[IO[str]]:
    """A file to which text is added. Raises OSError if the disk is full; part of the text may then be in the file."""
    with _named_if_full(path), path.open("a", encoding="utf-8") as file:
        yield file


@contextmanager
def _named_if_full(path: Path) -> Iterator[None]:
    """Within the block, the error of a full disk names the file, which Python's own does not."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL_DISK and error.filename is None:
            error.filename = str(path)
        raise


def output_file(path: Path) -> Path:
    """The file that `path` names, with symbolic links followed. It need not exist.

    Raises DataError if it is not a regular file, because replacing a device or a pipe would destroy it, and where the
    file or its folder may not be written to.
    """
    target = Path(os.path.realpath(path))
    # A link that leads to itself does not exist. Python cannot resolve /dev/stdout to a pipe, but the kernel can.
    if path.exists() or target.is_symlink():
        if not path.is_file():
            raise DataError(f"{path}: is not a file that can be written. Name a file.")
        if not os.access(target, os.W_OK):
            raise DataError(f"{path}: this user may not write to this file. Name another.")
    _refuse_unwritable(path, target.parent)
    return target


def output_folder(path: Path) -> Path:
    """The folder that `path` names, with symbolic links followed. It exists or can be made.

    Raises DataError if it is not a folder or may not be written to.
    """
    target = Path(os.path.realpath(path))
    _refuse_unwritable(path, target)
    return target


def _refuse_unwritable(path: Path, folder: Path) -> None:
    """Raises DataError if the nearest existing folder, in which missing ones would be made, cannot be written to."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.is_dir():
        raise DataError(f"{path}: {there} is not a folder, so nothing can be written below it. Name another place.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise DataError(f"{path}: this user may not write to the folder {there}. Name another place.")
