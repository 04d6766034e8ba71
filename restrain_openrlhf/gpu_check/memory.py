"""Peak memory of a configuration's training step: measured with few layers, extrapolated, held against the estimate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.gpu_check.children import json_lines, run_module
from restrain_openrlhf.gpu_check.outcome import Outcome, judged, passed, skipped
from restrain_openrlhf.gpu_check.setting import Setting
from restrain_openrlhf.hook.host_flags import host_flags, to_arguments
from restrain_openrlhf.hook.peak_case import PeakSeen, layers_of
from restrain_openrlhf.hook.this_machine import on_this_machine
from restrain_openrlhf.memory import GIB, MemoryEstimate, estimate, shape_of
from restrain_openrlhf.memory.engine import CONTEXT
from restrain_openrlhf.memory.gpu import visible_memory
from restrain_openrlhf.memory.layout import NotCoveredError
from restrain_openrlhf.memory.policy import TRAINING
from restrain_openrlhf.memory.shape import ShapeUnknownError
from restrain_openrlhf.run.train import arguments_here

LAYERS = (2, 4)
# What is measured: the policy on one GPU, alone with its states.
ALONE: Mapping[str, object] = {
    "actor.num_nodes": 1,
    "actor.num_gpus_per_node": 1,
    "train.colocate_all": False,
    "train.colocate_actor_ref": False,
}


@dataclass(frozen=True)
class Extrapolated:
    """Bytes and seconds of a step with all layers on one GPU that shares its states with none."""

    layers: int
    held: float
    peak: float
    seconds: float
    tokens: int


@dataclass(frozen=True)
class Estimated:
    """Bytes of the training step by `restrain show --memory`: `alone` what is measured, `layout` on CONFIG's GPUs."""

    alone: int
    layout: int

    @classmethod
    def of(cls, flags: Mapping[str, object]) -> "Estimated":
        """From the host's parsed flags. Raises ConfigError where the model or the layout is not covered."""
        shape = shape_of(str(flags["actor.model_name_or_path"]))
        # torch counts nothing of CUDA's own memory.
        alone = _training_peak(estimate({**flags, **ALONE}, shape)) - CONTEXT
        return cls(alone, _training_peak(estimate(flags, shape)))


def _training_peak(found: MemoryEstimate) -> int:
    return max(found.peak_bytes[phase] for phase in TRAINING)


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
    words = to_arguments({**setting.device.host_flags, **host_flags(on_this_machine(setting.config))})
    seen = [_measured(setting, words, layers) for layers in LAYERS]
    whole = extrapolate(seen[0], seen[1], layers_of(str(setting.config.openrlhf["actor.model_name_or_path"])))
    return [report_peak(whole), check_estimate(whole, setting.config), report_training(whole)]


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


def check_estimate(whole: Extrapolated, config: RunConfig) -> Outcome:
    """Skipped where `restrain show --memory` has no estimate."""
    try:
        estimated = Estimated.of(vars(arguments_here(config)))
    except (ShapeUnknownError, NotCoveredError) as error:
        return skipped("memory estimate", f"`restrain show --memory` has none: {error}")
    return judge_estimate(whole, estimated, visible_memory())


def judge_estimate(whole: Extrapolated, estimated: Estimated, gpu_bytes: int | None) -> Outcome:
    """Failed where CONFIG's layout, its estimate put right by the measurement, needs more than a GPU has.

    What was measured beyond the estimate is taken as there on each GPU: batches and buckets are not sharded, and what
    is, the states, is exact.
    """
    needed = estimated.layout + whole.peak - estimated.alone
    ratio = whole.peak / estimated.alone
    size = "a GPU's, whose size is not known here" if gpu_bytes is None else f"{gpu_bytes / GIB:.1f}"
    found = (
        f"measured {ratio:.2f} of the estimate for that one GPU ({estimated.alone / GIB:.1f} GiB); put right by it, "
        f"CONFIG's training step needs {needed / GIB:.1f} GiB of {size}"
    )
    fits = gpu_bytes is None or needed <= gpu_bytes
    return judged("memory estimate", fits, found, ratio=ratio, needed_gib=needed / GIB)
