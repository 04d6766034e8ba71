"""The gate of every run: all checks that only need settings, before a run is shown, rendered, tried or started."""

from restrain_openrlhf.config.checks.contradictions import CONTRADICTIONS, OUT_OF_BOUNDS, Check, refused_by_release
from restrain_openrlhf.config.checks.keys import INPUTS, KEYS, other_size, unfit_plan
from restrain_openrlhf.config.checks.layout import LAYOUT
from restrain_openrlhf.config.host_flags import Flags
from restrain_openrlhf.config.memory import why_it_cannot_fit
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import build

__all__ = ["CHECKS", "other_size", "refuse_settings", "refuse_unattended", "unfit_plan"]

CHECKS: tuple[Check, ...] = (refused_by_release, *OUT_OF_BOUNDS, *CONTRADICTIONS, *KEYS, *LAYOUT, *INPUTS)


def refuse_settings(config: HookConfig, flags: Flags, gpu_bytes: int | None = None) -> None:
    """Raises ConfigError for the first reason why OpenRLHF could not run, or would not train RESTRAIN.

    The result is the same on every machine, except for the memory of a GPU where `gpu_bytes` is given, and for the
    question whether the model, if its tokenizer is here, shall use its chat template.
    """
    method = build(config.method)
    for check in CHECKS:
        if reason := check(flags, config, method):
            raise ConfigError(reason)
    if reason := why_it_cannot_fit(flags, gpu_bytes):
        raise ConfigError(reason)


def refuse_unattended(flags: Flags) -> None:
    """Raises ConfigError if a cluster that restarts the run would lose work."""
    if int(flags["ckpt.save_steps"]) <= 0 or not flags["ckpt.load_enable"]:
        raise ConfigError(
            "ckpt.save_steps must be above 0 and ckpt.load_enable must be true: otherwise a preempted run would start "
            "again from the beginning."
        )
