"""Seconds from SIGKILL to the next finished step: a small run of the demo's, killed and started again by hand.

The run of `restrain gpu-check`: steps of 8 prompts x 8 rollouts, a checkpoint every second one, killed after the third
with all of its processes and started again at once. What is counted ends as a step is in `metrics.jsonl`.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from restrain_openrlhf.commands.gpu_check import RESTRAIN
from restrain_openrlhf.commands.gpu_check.small_run import SmallRun, shared_run
from restrain_openrlhf.machine.processes import POLL_SECONDS, ending_with_us, start_module
from restrain_openrlhf.records.metrics import StepRow, read_steps

PATIENCE_SECONDS = 60
# A checkpoint every second step, and the step after which the run is killed.
SAVED, KILLED_AFTER = 2, 3


def seconds_to(small: SmallRun, moments: dict[str, Callable[[list[StepRow]], bool]]) -> dict[str, float]:
    """Start the run, and say when each moment came, by the rows of its steps."""
    begin, found = time.monotonic(), {}
    with ending_with_us(PATIENCE_SECONDS) as running:
        process = start_module(RESTRAIN, small.words(), small.log)
        running.append(process)
        while process.poll() is None and len(found) < len(moments):
            rows = list(read_steps(small.run.metrics))
            for name, came in moments.items():
                if name not in found and came(rows):
                    found[name] = time.monotonic() - begin
            time.sleep(POLL_SECONDS)
        process.wait()
    return found


def kill_when(happened: Callable[[], bool], small: SmallRun) -> None:
    """Start the run, and kill it with all its children once `happened`, as when a machine goes down."""
    with ending_with_us(PATIENCE_SECONDS) as running:
        process = start_module(RESTRAIN, small.words(), small.log)
        running.append(process)
        while not happened():
            if process.poll() is not None:
                raise SystemExit(f"The run ended before it could be killed: {small.log}")
            time.sleep(POLL_SECONDS)
        every = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        for each in every:
            each.kill()
        psutil.wait_procs(every, timeout=PATIENCE_SECONDS)


def once(folder: Path) -> dict[str, float]:
    """A first start, killed after its third step; then a second one, to its end."""
    small = shared_run(folder, None)
    small = replace(small, flags={**small.flags, "ckpt.save_steps": SAVED})
    begin, first = time.monotonic(), []

    def is_over() -> bool:
        rows = list(read_steps(small.run.metrics))
        if rows and not first:
            first.append(time.monotonic() - begin)
        return len(rows) >= KILLED_AFTER

    kill_when(is_over, small)
    before = list(read_steps(small.run.metrics))
    again = KILLED_AFTER - 1
    return {
        "start to the first step": first[0],
        **seconds_to(
            small,
            {
                "SIGKILL to the next finished step, one of before": lambda rows: (
                    len(rows) > again and rows[again] != before[again]
                ),
                "SIGKILL to the first new step": lambda rows: len(rows) > len(before),
            },
        ),
    }


def main() -> None:
    """Print medians and their range."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder:
        found = [once(Path(folder) / str(number)) for number in range(repeats)]
    table = Table("what", "median, s", "lowest to highest", title=f"{repeats} runs")
    for name in found[0]:
        values = [each[name] for each in found]
        table.add_row(name, f"{statistics.median(values):.1f}", f"{min(values):.1f} to {max(values):.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
