"""A memory estimate: phases, lines with their formula, sums and peaks, and the whole as Markdown tables."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

GIB = 2**30
# The column of a table at which numbers begin.
NUMBERS = 2
Row = Sequence[str]


class Phase(StrEnum):
    """A part of a training step that has its own peak of memory, on one kind of GPU."""

    GENERATION = "generation"
    REFERENCE = "reference"
    EXPERIENCE = "experience"
    HEAD = "backward: head"
    LAYERS = "backward: layers"
    STEP = "optimizer step"
    SYNC = "weight sync"


# A training step's passes have two peaks: when the head's backward pass begins, and when that of a layer does.
BACKWARD = (Phase.HEAD, Phase.LAYERS)
TRAINING = (*BACKWARD, Phase.STEP)


@dataclass(frozen=True)
class MemoryLine:
    """`bytes` that each GPU holds in the phases. `certain` bytes do not depend on the batch; others are estimates."""

    name: str
    formula: str
    bytes: int
    phases: tuple[Phase, ...] = ()
    certain: bool = False


@dataclass(frozen=True)
class CacheRoom:
    """The tokens whose keys and values fit into an engine's cache, and the rollouts that it is given at once."""

    tokens: int
    rollouts: int


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes per GPU by phase (`lines`), per node (`host`), and in the run's folder (`disk`).

    `gpu_bytes` is the GPU's memory. It is None if that is unknown, and then `cache` is None, too.
    """

    lines: tuple[MemoryLine, ...]
    host: tuple[MemoryLine, ...]
    disk: tuple[MemoryLine, ...]
    gpu_bytes: int | None = None
    cache: CacheRoom | None = None

    @property
    def peak_bytes(self) -> Mapping[Phase, int]:
        return _sums(self.lines)

    @property
    def certain_bytes(self) -> Mapping[Phase, int]:
        return _sums([line for line in self.lines if line.certain])

    @property
    def peak(self) -> tuple[Phase, int]:
        """The phase that needs the most memory, and its bytes."""
        return max(self.peak_bytes.items(), key=lambda entry: entry[1])

    @property
    def certain(self) -> tuple[Phase, int]:
        """The phase with the most memory that is certain, and these bytes."""
        return max(self.certain_bytes.items(), key=lambda entry: entry[1])

    def why_it_cannot_fit(self, utilization: float) -> str | None:
        """Why the GPU's memory is too small for what is certain, of which vLLM has the share `utilization`."""
        phase, needed = self.certain
        if self.gpu_bytes is None:
            return None
        certain, gib = [line for line in self.lines if line.certain], f"{self.gpu_bytes / GIB:.1f}"
        if needed > self.gpu_bytes:
            held = "; ".join(f"{line.name} {line.bytes / GIB:.1f}" for line in certain if phase in line.phases)
            return (
                f"A GPU has {gib} GiB, and what is certain alone needs {needed / GIB:.1f} in the phase {phase.value!r} "
                f"({held}). Use more GPUs with ds.zero_stage 3, ds.adam_offload, ds.lora.rank, or a smaller model; "
                "`restrain show CONFIG --memory` has every line."
            )
        engine = [line for line in certain if line.name.startswith("vLLM") and Phase.GENERATION in line.phases]
        if sum(line.bytes for line in engine) <= utilization * self.gpu_bytes:
            return None
        return (
            f"vllm.gpu_memory_utilization is {utilization:g}: {utilization * self.gpu_bytes / GIB:.1f} of {gib} GiB, "
            f"and vLLM needs {sum(line.bytes for line in engine) / GIB:.1f} for its weights and one sequence of "
            "data.max_len. Raise it, or raise vllm.tensor_parallel_size."
        )


def _sums(lines: Sequence[MemoryLine]) -> dict[Phase, int]:
    phases = (phase for phase in Phase if any(phase in line.phases for line in lines))
    return {phase: sum(line.bytes for line in lines if phase in line.phases) for phase in phases}


def as_markdown(found: MemoryEstimate) -> str:
    """All lines with their formulas and their GiB in each phase, the peaks, the host and the disk."""
    phases, certain = tuple(found.peak_bytes), found.certain_bytes
    rows = [
        ("held on each GPU", "bytes", *(phase.value for phase in phases)),
        *((line.name, line.formula, *_cells(line, phases)) for line in found.lines),
        ("**sum**", "", *(f"**{_gib(size)}**" for size in found.peak_bytes.values())),
        ("of it certain: weights, states, vLLM's share", "", *(_gib(certain.get(phase, 0)) for phase in phases)),
    ]
    other = [("host and disk", "bytes", "GiB"), *_amounts("host, a node", found.host), *_amounts("disk", found.disk)]
    said = " ".join([verdict(found), *([cache(found.cache)] if found.cache else [])])
    return f"{_aligned(rows)}\n\n{said}\n\n{_aligned(other)}\n"


def verdict(found: MemoryEstimate) -> str:
    """A sentence about the peak, and the GPU's memory if that is known."""
    phase, needed = found.peak
    peak = f"Peak: {_gib(needed)} GiB, {phase.value}"
    if found.gpu_bytes is None:
        return f"{peak}. The GPU's memory is not known here: give --gpu-memory GIB."
    left = found.gpu_bytes - needed
    room = f"{_gib(left)} left" if left >= 0 else f"{_gib(-left)} too many by this estimate"
    return (
        f"{peak}, of the GPU's {_gib(found.gpu_bytes)}: {room}. Not counted: fragmentation, NCCL's buffers, masks of a "
        "sliding window."
    )


def cache(room: CacheRoom) -> str:
    """A sentence about the cache, which limits how many rollouts an engine draws at the same time; the others wait."""
    return (
        f"An engine's cache has at most {room.tokens:,} tokens: {room.tokens // room.rollouts:,} for each of "
        f"{room.rollouts} rollouts at once."
    )


def _cells(line: MemoryLine, phases: Iterable[Phase]) -> list[str]:
    return [_gib(line.bytes) if phase in line.phases else "" for phase in phases]


def _amounts(where: str, lines: Iterable[MemoryLine]) -> list[Row]:
    return [(f"{where}: {line.name}", line.formula, _gib(line.bytes)) for line in lines]


def _gib(size: int) -> str:
    return f"{size / GIB:.2f}" if size < GIB else f"{size / GIB:.1f}"


def _aligned(rows: Sequence[Row]) -> str:
    """A Markdown table with text aligned left, and numbers, from the third column on, aligned right."""
    width = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = "<" * NUMBERS + ">" * (len(width) - NUMBERS)
    rule = [f"{'-' if side == '<' else ':':-{side}{size}}" for side, size in zip(sides, width, strict=True)]
    head, *body = [[f"{cell:{side}{size}}" for cell, side, size in zip(row, sides, width, strict=True)] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *body))
