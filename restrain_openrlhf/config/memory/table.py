"""Renders an estimate as Markdown tables, which are also readable on a terminal."""

from collections.abc import Iterable, Sequence

from restrain_openrlhf.config.memory.estimate import CacheRoom, MemoryEstimate
from restrain_openrlhf.config.memory.lines import GIB, MemoryLine, Phase

Row = Sequence[str]
# The column at which numbers begin.
NUMBERS = 2


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
    return f"{peak}, of the GPU's {_gib(found.gpu_bytes)}: {room}. Not counted: fragmentation, NCCL's buffers."


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
