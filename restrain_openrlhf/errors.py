"""Every exception this project raises on purpose; each message says what was found, where, and how to fix it."""


class RestrainError(Exception):
    """Base of all errors a user can act on; the command line prints its message and exits with status 2."""


class ConfigError(RestrainError):
    """A configuration, a flag or a combination of them is wrong."""


class DataError(RestrainError):
    """A file of prompts, rollouts or answers cannot be used as it is."""


class GroupError(RestrainError):
    """Rollouts that should form one prompt's group do not."""


class ReferencePassError(RestrainError):
    """The reference artifact is missing, damaged, or was made for something else."""


class HostError(RestrainError):
    """The installed OpenRLHF (or Ray, vLLM, DeepSpeed) is not what the hook was written against."""


class HookNotActiveError(HostError):
    """A process that should run the hooked trainer runs the host's own."""


class PolicyMismatchError(RestrainError):
    """The rollouts were drawn from another policy than the one that is trained."""


class CheckpointError(RestrainError):
    """A checkpoint cannot be written or read."""


class RunError(RestrainError):
    """A run stopped before its end, or two would share one folder."""
