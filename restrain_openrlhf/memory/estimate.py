"""A run's memory: every line of every phase, peaks, the host's memory, and the disk."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from restrain_openrlhf.memory.batch import batch_lines
from restrain_openrlhf.memory.engine import context_lines, engine_lines, sync_lines
from restrain_openrlhf.memory.host import disk_lines, host_lines
from restrain_openrlhf.memory.layout import Layout, read_layout
from restrain_openrlhf.memory.lines import Line, Phase
from restrain_openrlhf.memory.policy import policy_lines, reference_lines
from restrain_openrlhf.memory.shape import ModelShape


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes per GPU by phase (`lines`), per node (`host`), and in the run's folder (`disk`).

    `gpu_bytes` is the GPU's memory, None where it is not known. `layout` is what was read from the flags.
    """

    layout: Layout
    lines: tuple[Line, ...]
    host: tuple[Line, ...]
    disk: tuple[Line, ...]
    gpu_bytes: int | None = None
    peak_bytes: Mapping[Phase, int] = field(init=False)
    certain_bytes: Mapping[Phase, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "peak_bytes", _sums(self.lines))
        object.__setattr__(self, "certain_bytes", _sums(line for line in self.lines if line.certain))

    @property
    def peak(self) -> tuple[Phase, int]:
        """The phase that needs most, and its bytes."""
        return max(self.peak_bytes.items(), key=lambda entry: entry[1])

    @property
    def certain(self) -> tuple[Phase, int]:
        """The phase that certainly needs most, and its bytes."""
        return max(self.certain_bytes.items(), key=lambda entry: entry[1])


def estimate(flags: Mapping[str, object], shape: ModelShape, gpu_bytes: int | None = None) -> MemoryEstimate:
    """The memory of a run with these flags (dotted names, as OpenRLHF's parser gives them).

    Raises NotCoveredError for flags whose memory is not worked out.
    """
    layout = read_layout(flags)
    lines = (
        *policy_lines(layout, shape),
        *reference_lines(layout, shape),
        *batch_lines(layout, shape),
        *engine_lines(layout, shape, gpu_bytes),
        *sync_lines(layout, shape),
        *context_lines(layout),
    )
    return MemoryEstimate(layout, lines, tuple(host_lines(layout, shape)), tuple(disk_lines(layout, shape)), gpu_bytes)


def _sums(lines: Iterable[Line]) -> dict[Phase, int]:
    lines = tuple(lines)
    phases = (phase for phase in Phase if any(phase in line.phases for line in lines))
    return {phase: sum(line.bytes for line in lines if phase in line.phases) for phase in phases}
