"""POST /get_reward under load from OpenRLHF's own client: 1,024 prompts of 16 rollouts, all pending at one process.

Two runs: `burst` sends all requests as fast as the client can; `paced` has fifteen rollouts of every prompt wait, then
sends the last ones at a steady rate, and the time from there to each reply is what the service adds. Every reply is
compared with the scorer's own. All the while another process asks the liveness probe, four times a second, on the same
port as everything else.
"""

import argparse
import asyncio
import contextlib
import functools
import gc
import multiprocessing
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from rich.console import Console
from rich.table import Table
from serving import METHOD, Service, expected_pairs, make_groups

from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.scoring.wire import NEGATIVE, POSITIVE

END = "<|im_end|>"
CUT_SHORT = 0.05
PROBE_SECONDS = 0.25
PROMPT: ContextVar[str] = ContextVar("PROMPT")


@dataclass
class Load:
    """Rollouts by prompt, what they should get, and what they got with which delay (seconds)."""

    prompts: dict[str, list[str]]
    expected: dict[str, dict[str, tuple[float, float]]]
    wrong: int = 0
    lost: int = 0
    sent: dict[str, float] = field(default_factory=dict)
    delays: list[float] = field(default_factory=list)


def make_load(prompts: int, n: int) -> Load:
    """Groups with a duplicate each, some responses cut short, and what each rollout should get.

    All runs have the same ones: texts that were answered a moment ago must not be taken for retries.
    """
    chance = random.Random(1)
    named = [f"<|im_start|>user\nProblem {i}: what is it?<|im_end|>\n<|im_start|>assistant\n" for i in range(prompts)]
    groups = {}
    for prompt, texts in make_groups(named, n).items():
        ends = [(text, chance.random() >= CUT_SHORT) for text in texts]
        groups[prompt] = [ends[0], ends[0], *ends[2:]]
    queries = {
        prompt: [f"{prompt}{text}{END if finished else ''}" for text, finished in group]
        for prompt, group in groups.items()
    }
    pairs = expected_pairs(groups)
    return Load(queries, {prompt: dict(zip(queries[prompt], pairs[prompt], strict=True)) for prompt in queries})


async def ask(executor: Any, load: Load, prompt: str, query: str) -> None:
    """One rollout through OpenRLHF's client; its reply is checked."""
    PROMPT.set(prompt)
    try:
        ((reply),) = await executor._fetch_rewards_via_http([query], [prompt], [""])
    except RuntimeError:
        load.lost += 1
        return
    load.delays.append(time.perf_counter() - load.sent[prompt])
    logs = reply["extra_logs"]
    expected = load.expected[prompt][query]
    if max(abs(logs[POSITIVE] - expected[0]), abs(logs[NEGATIVE] - expected[1])) > 1e-9:
        load.wrong += 1


@contextlib.contextmanager
def noting_when_sent(load: Load) -> Iterator[None]:
    """Have OpenRLHF's client say when it wrote a rollout: a group is complete with its last one."""
    import aiohttp

    async def sent(*_: object) -> None:
        load.sent[PROMPT.get()] = time.perf_counter()

    trace = aiohttp.TraceConfig()
    trace.on_request_chunk_sent.append(sent)
    plain = aiohttp.ClientSession
    aiohttp.ClientSession = functools.partial(plain, trace_configs=[trace])  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        aiohttp.ClientSession = plain  # type: ignore[misc]


async def burst(executor: Any, load: Load) -> float:
    """Everything at once, prompts mixed; seconds until the last reply."""
    pairs = [(prompt, query) for prompt, queries in load.prompts.items() for query in queries]
    random.Random(1).shuffle(pairs)
    start = time.perf_counter()
    await asyncio.gather(*(ask(executor, load, *pair) for pair in pairs))
    return time.perf_counter() - start


async def paced(executor: Any, load: Load, rate: float, port: int) -> float:
    """All but one rollout of each prompt have a slot; then the last ones come, `rate` a second."""
    before = slots(port)
    tasks = [
        asyncio.create_task(ask(executor, load, prompt, query))
        for prompt, queries in load.prompts.items()
        for query in queries[:-1]
    ]
    while await asyncio.to_thread(slots, port) < before + len(tasks):
        await asyncio.sleep(1)
    # The client's own search for garbage among so many tasks would stop it for seconds, and count as the service's.
    gc.collect()
    gc.freeze()
    start = time.perf_counter()
    for number, (prompt, queries) in enumerate(load.prompts.items()):
        await asyncio.sleep(max(0.0, start + number / rate - time.perf_counter()))
        tasks.append(asyncio.create_task(ask(executor, load, prompt, queries[-1])))
    await asyncio.gather(*tasks)
    gc.unfreeze()
    return time.perf_counter() - start


def slots(port: int) -> float:
    """Rollouts that have taken a slot so far."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=120) as reply:
        lines = reply.read().decode().splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith("restrain_slots_total{"))


def ask_probe(port: int, until: Connection) -> None:
    """Ask the liveness probe until told to stop; then send the longest time one took, in seconds."""
    worst = 0.0
    until.send("started")
    while not until.poll(PROBE_SECONDS):
        start = time.perf_counter()
        with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=120) as reply:
            reply.read()
        worst = max(worst, time.perf_counter() - start)
    until.send(worst)


@contextlib.contextmanager
def probing(port: int) -> Iterator[list[float]]:
    """Ask the probe meanwhile, from a process of its own; afterwards the list has the longest time one took."""
    worst: list[float] = []
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=ask_probe, args=(port, there), daemon=True)
    process.start()
    here.recv()
    yield worst
    here.send("stop")
    worst.append(here.recv())
    process.join()


def measure(port: int, options: argparse.Namespace) -> Iterator[list[str]]:
    """Both runs' rows."""
    from openrlhf.utils.agent import SingleTurnAgentExecutor

    for name in ("burst", "paced"):
        load = make_load(options.prompts, options.n)
        executor = SingleTurnAgentExecutor(f"http://127.0.0.1:{port}/get_reward")
        run = burst(executor, load) if name == "burst" else paced(executor, load, options.rate, port)
        with noting_when_sent(load), probing(port) as worst:
            seconds = asyncio.run(run)
        cuts = statistics.quantiles(load.delays, n=100)
        counts = [str(options.prompts * options.n), str(load.lost), str(load.wrong)]
        yield [name, *counts, f"{seconds:.1f}", *(f"{value * 1000:.0f}" for value in (cuts[49], cuts[98], *worst))]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=1024)
    parser.add_argument("--n", type=int, default=16)
    parser.add_argument("--rate", type=float, default=20.0, help="groups completed per second in the paced run")
    options = parser.parse_args()
    detect().install()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    columns = ("run", "requests", "lost", "wrong", "seconds", "p50 ms", "p99 ms", "slowest probe ms")
    table = Table(*columns, title="delay: from the group's last rollout to each reply")
    with tempfile.TemporaryDirectory() as name:
        config = Path(name) / "service.yaml"
        config.write_text(f"method: {METHOD}\nservice: {{group_size: {options.n}, end_of_text: '{END}'}}\n")
        service = Service(config)
        service.start()
        try:
            for row in measure(service.port, options):
                table.add_row(*row)
        finally:
            service.kill()
    Console().print(table, f"the service's peak memory: {service.peak / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
