"""Every exception this project raises on purpose; each message says what was found, where, and how to fix it."""

import difflib
import errno
from collections.abc import Iterable
from pathlib import Path

# The system's numbers for: the disk is full, or this user's part of it.
FULL_DISK = frozenset((errno.ENOSPC, errno.EDQUOT))


class RestrainError(Exception):
    """Base of all errors a user can act on; the command line prints its message and exits with status 2."""


class ConfigError(RestrainError):
    """A configuration, a flag or a combination of them is wrong."""


class DataError(RestrainError):
    """A file of prompts, rollouts or answers must be corrected before it can be used."""


class GroupError(RestrainError):
    """Rollouts that should form one prompt's group do not."""


class GraderError(RestrainError):
    """What reads or compares answers (a process, a model, a judge) does not start, or gives no result."""


class ReferencePassError(RestrainError):
    """The reference artifact is missing, damaged, or was made for something else."""


class HostError(RestrainError):
    """The installed OpenRLHF (or Ray, vLLM, DeepSpeed) is not what the hook was written against."""


class HookNotActiveError(HostError):
    """A process that should run hooked runs the unchanged host. The message is what was found; the fix is added."""

    def __str__(self) -> str:
        return (
            f"{super().__str__()} Start with `restrain train` or `python -m restrain_openrlhf.hook.train_ppo_ray`, and "
            "make sure that every Ray node has this restrain-openrlhf installed."
        )


class PolicyMismatchError(RestrainError):
    """The rollouts were drawn from another policy than the one that is trained."""


class CheckpointError(RestrainError):
    """A checkpoint cannot be written or read."""


class RunError(RestrainError):
    """A run stopped before its end, or two would share one folder."""


def reason_of(error: Exception) -> str:
    """What an error of another library says, in one line of at most 300 characters; its type where it says nothing."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def did_you_mean(word: object, known: Iterable[str], n: int = 1, block: str = "") -> str:
    """` Did you mean 'kappa'?`, with a space before it, of the nearest names; empty if none is near.

    A known name that is the word but for its blocks (kappa and method.kappa) is nearest. `block` is
    put before each name.
    """
    names, wanted = {name.casefold(): name for name in known}, str(word).casefold()
    last = wanted.rpartition(".")[2]
    same = [name for name in names if wanted.endswith(f".{name}") or name.endswith(f".{wanted}")]
    near = same or difflib.get_close_matches(wanted, names, n)
    near = near or [name for name in names if difflib.get_close_matches(last, [name.rpartition(".")[2]], 1, 0.75)]
    return f" Did you mean {' or '.join(repr(block + names[name]) for name in near[:n])}?" if near else ""


def no_such_file(path: Path, what: str = "file") -> str:
    """A message that there is no such file at `path`, with the nearest name in its folder."""
    beside = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
    # Names of one suffix are alike to begin with.
    near = difflib.get_close_matches(path.name, beside, 1, cutoff=0.8)
    return f"{path}: no such {what}.{f' Did you mean {near[0]!r}?' if near else ''} Check the path."
