"""The gate of every run: all checks that only need settings, and the smallest changes that would pass them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from restrain_openrlhf.config.checks.keys import (
    CONTRADICTIONS,
    INPUTS,
    KEYS,
    OUT_OF_BOUNDS,
    Check,
    other_size,
    refused_by_release,
    unfit_plan,
)
from restrain_openrlhf.config.checks.layout import LAYOUT
from restrain_openrlhf.config.gpu_layout import NodeShape
from restrain_openrlhf.config.host_flags import Flags, flags_of, host_parser
from restrain_openrlhf.config.memory.estimate import estimate
from restrain_openrlhf.config.memory.lines import GIB
from restrain_openrlhf.config.memory.shape import NoEstimateError, shape_of
from restrain_openrlhf.config.yaml_file import HookConfig, RunConfig
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import Method, build

__all__ = ["CHECKS", "Refusal", "flags_on_nodes", "other_size", "refusals", "refuse_settings", "unfit_plan"]

CHECKS: tuple[Check, ...] = (refused_by_release, *OUT_OF_BOUNDS, *CONTRADICTIONS, *KEYS, *LAYOUT, *INPUTS)
# The part of a reason that says what to do.
_REMEDY = re.compile(r"\b(?:Set|Remove|Leave|Raise|Lower)\b.*", re.DOTALL)
_NAME = re.compile(r"\w+(?:\.\w+)+")
# A reason with these words leaves the choice to the user, so no change is tried.
_CHOICE = "one of"


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


def why_it_cannot_fit(flags: Flags, gpu_bytes: int | None) -> str | None:
    """Why the memory that is certain does not fit; None also where the GPU's or the model's size is not known."""
    try:
        found = estimate(flags, shape_of(str(flags["actor.model_name_or_path"])), gpu_bytes)
    except NoEstimateError:
        return None
    return found.why_it_cannot_fit(float(flags["vllm.gpu_memory_utilization"]))


def flags_on_nodes(config: RunConfig, shape: NodeShape) -> dict[str, Any]:
    """The values of all flags of OpenRLHF in a run that a cluster starts, and restarts.

    Raises ConfigError for settings that could not run or fit, and for a run that could not be resumed.
    """
    flags = flags_of(config)
    refuse_settings(config, flags, shape.gpu_memory * GIB if shape.gpu_memory else None)
    if int(flags["ckpt.save_steps"]) <= 0 or not flags["ckpt.load_enable"]:
        raise ConfigError(
            "ckpt.save_steps must be above 0 and ckpt.load_enable must be true: otherwise a preempted run would start "
            "again from the beginning."
        )
    return flags


@dataclass(frozen=True)
class Refusal:
    """Why flags are refused, and the change of flags (dotted names) that removes the reason.

    The change is on top of those of earlier refusals. A flag that should be left out gets its default. Without a
    change, the user has to decide.
    """

    check: Check
    reason: str
    change: Flags = field(default_factory=dict)


def refusals(checks: Sequence[Check], config: HookConfig, flags: Flags, method: Method) -> list[Refusal]:
    """The refusals of the checks, in order."""
    now, found = dict(flags), list[Refusal]()
    for check in checks:
        if _counts(check, now, config, method) and (reason := check(now, config, method)):
            found.append(Refusal(check, reason, _change(reason, check, config, now, method)))
            now |= found[-1].change
    # Leave out a refusal without a change that a later change has removed.
    return [each for each in found if each.change or each.check(now, config, method)]


def _counts(check: Check, flags: Flags, config: HookConfig, method: Method) -> bool:
    """Whether the check can be called. Checks of a layout compute with sizes, which may be missing."""
    return check not in LAYOUT or not any(each(flags, config, method) for each in OUT_OF_BOUNDS)


def _change(reason: str, check: Check, config: HookConfig, now: Flags, method: Method) -> Flags:
    """The first of the changes that the reason suggests under which the check does not refuse."""
    changes = (each for each in _changes_in(reason, now) if not check({**now, **each}, config, method))
    return next(changes, {})


def _changes_in(reason: str, now: Flags) -> Iterator[Flags]:
    """The changes that a reason suggests: each flag alone, all of them, then switches turned and flags left out."""
    remedy = found[0] if (found := _REMEDY.search(reason)) else _CHOICE
    if _CHOICE in remedy:
        return
    subject = next((name for name in _NAME.findall(reason) if name in now), None)
    names = [name for name in dict.fromkeys([*_NAME.findall(remedy), subject]) if name in now]
    stated = [(name, value) for name in names for value in _values(name, remedy, is_subject=name == subject)]
    yield from ({name: value} for name, value in stated)
    yield dict(stated)
    for name in names:
        yield {name: not now[name] if isinstance(now[name], bool) else host_parser().get_default(name)}


def _values(name: str, remedy: str, is_subject: bool) -> Iterator[object]:
    """The values that the remedy gives a flag: numbers, words, or on. `it` is the flag that the reason is about."""
    called = rf"(?:{re.escape(name)}{'|it|the paper uses' if is_subject else ''})"
    action = host_parser()._option_string_actions[f"--{name}"]
    words = re.findall(rf"\b{called}(?: to)? ([\w.+-]*\w)", remedy)
    if action.type in (int, float):
        yield from (action.type(word) for word in words if re.fullmatch(r"[\d.e+-]+", word))
    elif action.nargs == 0:
        told = re.search(rf"\b[Ss]et {called}\b", remedy)
        yield from [word == "true" for word in words] or ([True] if told else [])
    else:
        yield from words
