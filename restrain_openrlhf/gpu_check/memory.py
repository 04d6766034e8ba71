"""Peak memory of a configuration's training step on one GPU: measured with few layers, extrapolated to all of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.gpu_check.children import json_lines, run_module
from restrain_openrlhf.gpu_check.outcome import Outcome, judged, passed, skipped
from restrain_openrlhf.gpu_check.setting import Setting
from restrain_openrlhf.hook.host_flags import host_flags, to_arguments
from restrain_openrlhf.hook.peak_case import PeakSeen, layers_of

LAYERS = (2, 4)
GIB = 2**30
# An estimate that is this far from the measured peak is wrong.
APART = 0.25


@dataclass(frozen=True)
class Extrapolated:
    """Bytes and seconds of a step with all layers on one GPU that shares its states with none."""

    layers: int
    held: float
    peak: float
    seconds: float
    tokens: int


def extrapolate(few: PeakSeen, more: PeakSeen, layers: int) -> Extrapolated:
    """The line through two measurements, at `layers`: embedding and head count once, each layer the same."""

    def at(one: float, other: float) -> float:
        return one + (other - one) * (layers - few.layers) / (more.layers - few.layers)

    return Extrapolated(
        layers,
        held=at(few.held, more.held),
        peak=at(few.peak, more.peak),
        seconds=at(few.seconds, more.seconds),
        tokens=more.tokens,
    )


def check_memory(setting: Setting) -> list[Outcome]:
    """Skipped without a configuration or a GPU. Each measurement has a process of its own."""
    name = "peak memory"
    if setting.config is None:
        return [skipped(name, "no CONFIG was given")]
    if not setting.device.has_gpus:
        return [skipped(name, "it is a GPU's memory that is measured")]
    words = to_arguments({**setting.device.host_flags, **host_flags(setting.config)})
    seen = [_measured(setting, words, layers) for layers in LAYERS]
    whole = extrapolate(seen[0], seen[1], layers_of(str(setting.config.openrlhf["actor.model_name_or_path"])))
    return [report_peak(whole), compare_with_estimate(whole, estimated_peak(setting.config)), report_training(whole)]


def _measured(setting: Setting, words: Sequence[str], layers: int) -> PeakSeen:
    log = setting.folder("memory") / f"layers-{layers}.log"
    run_module("restrain_openrlhf.hook.peak_case", ["--layers", layers, *words], log)
    (seen,) = json_lines(log)
    return PeakSeen(**seen)


def report_peak(whole: Extrapolated) -> Outcome:
    """What the step would take on one GPU; sharding divides the states among several."""
    found = (
        f"{whole.peak / GIB:.1f} GiB at {whole.layers} layers by extrapolation, {whole.held / GIB:.1f} of them between "
        "steps, on one GPU that shards with no other (reported)"
    )
    return passed("peak memory", found, peak_gib=whole.peak / GIB, held_gib=whole.held / GIB)


def report_training(whole: Extrapolated) -> Outcome:
    """Training's speed at the configuration's shapes, on one GPU."""
    rate = whole.tokens / whole.seconds
    return passed("training speed", f"{rate:,.0f} tokens a second on one GPU by extrapolation (reported)", rate=rate)


def estimated_peak(config: RunConfig) -> float | None:
    """Bytes that `restrain show CONFIG --memory` gives for the training step on one GPU; None where it has no figure.

    This is the one place where the estimate comes in: `memory.estimate(flags, shape)` at one GPU, its training phase.
    """
    del config
    return None


def compare_with_estimate(whole: Extrapolated, estimated: float | None) -> Outcome:
    """Failed where the two are further apart than a quarter: one of them is wrong, and a layout rests on it."""
    name = "memory estimate"
    if estimated is None:
        return skipped(name, "`restrain show` has no estimate of this configuration's memory")
    apart = abs(estimated - whole.peak) / whole.peak
    found = (
        f"{estimated / GIB:.1f} GiB estimated, {whole.peak / GIB:.1f} measured: {apart:.0%} apart (limit {APART:.0%})"
    )
    return judged(name, apart <= APART, found, apart=apart, estimated_gib=estimated / GIB)
