"""What a weight sync of the CPU stack sends and holds: a policy and engines, a process each, over real connections.

    python benchmarks/weight_sync.py                         two engines, 40 weights of 1 MB, 50 syncs: half a minute
    python benchmarks/weight_sync.py --package DIRECTORY     of another checkout, to compare two side by side

The policy's weights are views of one buffer, as DeepSpeed's are, and each is overwritten as soon as it is sent. Bytes
are the kernel's count of what the policy's TCP connections sent. Memory is the resident size of a whole process, above
what it was after the first sync.
"""

import argparse
import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

# struct tcp_info (linux/tcp.h): where tcpi_bytes_sent is.
BYTES_SENT = 200
# Whole numbers below it are exact in bfloat16.
EXACT = 256


@dataclass(frozen=True)
class Sizes:
    """Of a measurement: engines, weights, bytes of a weight (an even number), syncs."""

    engines: int
    weights: int
    size: int
    syncs: int

    @property
    def of_a_sync(self) -> int:
        """The bytes that have to be sent: every weight to every engine."""
        return self.engines * self.weights * self.size


@dataclass(frozen=True)
class Measured:
    """One process over all syncs: bytes sent, bytes of memory at the peak and at the end, wrong weights, seconds."""

    sent: int
    peak: int
    grown: int
    wrong: int
    seconds: float


def take_part(rank: int, port: int, sizes: Sizes) -> None:
    """All syncs, as the policy (rank 0) or as an engine; print what was measured."""
    import torch

    from restrain_openrlhf.machine.cpu.host import connect_over_tcp

    group = connect_over_tcp("127.0.0.1", port, rank, sizes.engines + 1, "cpu")
    buffer = torch.empty(1 if rank else sizes.weights, sizes.size // 2, dtype=torch.bfloat16)
    begin, wrong, settled = time.perf_counter(), 0, 0
    for sync in range(sizes.syncs):
        for number in range(sizes.weights):
            weight, value = buffer[0 if rank else number], (sync * sizes.weights + number) % EXACT
            weight.fill_(-1 if rank else value)
            group.broadcast(weight, src=0)
            wrong += not bool((weight == value).all())
            weight.fill_(-1)
        if sync == 0:
            Path("/proc/self/clear_refs").write_text("5")  # The peak is counted from here on.
            settled = memory("VmRSS")
    seconds = time.perf_counter() - begin
    found = Measured(bytes_sent(), memory("VmHWM") - settled, memory("VmRSS") - settled, wrong, seconds)
    print(json.dumps(asdict(found)), flush=True)
    sys.stdin.read()


def memory(line: str) -> int:
    """Bytes of this process by the kernel: `VmRSS`, or `VmHWM` for the peak."""
    found = re.search(rf"{line}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return 1024 * int(found[1])


def bytes_sent() -> int:
    """By the TCP connections that this process has now, since each was made."""
    found = 0
    for number in os.listdir("/proc/self/fd"):
        # The kernel refuses this for what is no TCP connection.
        with suppress(OSError), socket.socket(fileno=os.dup(int(number))) as connection:
            information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, BYTES_SENT + 8)
            found += struct.unpack_from("Q", information, BYTES_SENT)[0]
    return found


def measure(sizes: Sizes, package: Path) -> list[Measured]:
    """The policy and then the engines, each in a process of its own that imports the package from this checkout."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, __file__, "--take-part", json.dumps([port, asdict(sizes)])]
    environment = {**os.environ, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": environment, "text": True}
    every = [subprocess.Popen([*command, str(rank)], **pipes) for rank in range(sizes.engines + 1)]
    # None ends, and closes its connections, before all have counted.
    found = [Measured(**json.loads(process.stdout.readline())) for process in every]
    for process in every:
        process.communicate()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--weights", type=int, default=40)
    parser.add_argument("--size", type=int, default=10**6, help="bytes of a weight")
    parser.add_argument("--syncs", type=int, default=50)
    parser.add_argument("--package", type=Path, default=Path(__file__).parent.parent, help="a checkout")
    options = parser.parse_args()
    sizes = Sizes(options.engines, options.weights, options.size, options.syncs)
    table = Table("process", "bytes sent / the weights'", "peak memory / the weights'", "memory grown / the weights'")
    found = measure(sizes, options.package.resolve())
    for rank, each in enumerate(found):
        of_the_weights = [bytes_ / (sizes.weights * sizes.size) for bytes_ in (each.peak, each.grown)]
        sent = "" if rank else f"{each.sent / sizes.syncs / sizes.of_a_sync:.3f}"
        table.add_row(f"engine {rank}" if rank else "policy", sent, *(f"{each:.3f}" for each in of_the_weights))
    Console().print(table, f"{found[0].seconds / sizes.syncs:.3f} s a sync; {sum(each.wrong for each in found)} wrong")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--take-part"]:
        (port, sizes), rank = json.loads(sys.argv[2]), int(sys.argv[3])
        take_part(rank, port, Sizes(**sizes))
    else:
        main()
