"""The agent under load: 1,024 prompts of 16 rollouts through OpenRLHF's own generate_responses, scored by a service.

The engine is made up. In a burst it answers at once, so that all groups are complete together: the worst case for the
service. Paced, groups are complete at a steady rate, and their delay is what scoring adds.

Each setting is run several times, in turns: scored in process, by one replica, by two behind a plain round robin, and
by two of which one is killed with SIGKILL when a quarter of the groups has been scored and started again at once. A
group's delay is from its last rollout to its scores. Every advantage is compared with the scorer's own, bit by bit.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from round_robin import RoundRobin
from serving import METHOD, Service, expected_pairs, make_groups

from restrain_openrlhf.machine.devices import detect

EOS = 0


class Letters:
    """Token i is the character chr(i), 0 the end."""

    def __call__(self, text: str, add_special_tokens: bool, return_tensors: str) -> dict[str, Any]:
        return {"input_ids": torch.tensor([[ord(letter) for letter in text]])}

    def decode(self, tokens: list[int], skip_special_tokens: bool) -> str:
        return "".join(chr(token) for token in tokens if token != EOS)


def actor_of(texts: dict[str, list[str]], drawn: dict[str, float]) -> Any:
    """The host's own rollout actor with the agent, over an engine that writes these texts; `drawn`: when the last."""
    from openrlhf.trainer.ray.vllm_engine import RolloutRayActor

    from restrain_openrlhf.hook.agent import AgentExecutor

    class Actor(RolloutRayActor.__ray_metadata__.modified_class):  # type: ignore[misc]
        def __init__(self) -> None:
            self.executor = AgentExecutor()
            self.left = {prompt: iter(responses) for prompt, responses in texts.items()}

        async def generate(
            self, prompt_token_ids: list[int], sampling_params: Any, multi_modal_data: Any = None
        ) -> Any:
            prompt = "".join(map(chr, prompt_token_ids))
            tokens = [*map(ord, next(self.left[prompt])), EOS]
            drawn[prompt] = time.perf_counter()
            made = SimpleNamespace(token_ids=tokens, finish_reason="stop", logprobs=None)
            return SimpleNamespace(outputs=[made])

    return Actor()


@dataclass
class Outcome:
    """One run: `delays` in seconds, one for each group."""

    seconds: float
    lost: int
    wrong: int
    delays: list[float]


def run(
    texts: dict[str, list[str]],
    expected: dict[str, list[tuple[float, float]]],
    done: threading.Event,
    rate: float | None,
) -> Outcome:
    """All groups at once, or `rate` a second; `done` is set when a quarter of them has its scores."""
    from vllm import SamplingParams

    drawn: dict[str, float] = {}
    delays: list[float] = []
    wrong = 0

    async def group(actor: Any, number: int, prompt: str) -> None:
        nonlocal wrong
        await asyncio.sleep(number / rate if rate else 0)
        rows = await actor.generate_responses(
            prompt=prompt,
            label="",
            sampling_params=SamplingParams(max_tokens=4096),
            max_length=8192,
            hf_tokenizer=Letters(),
            num_samples=len(texts[prompt]),
        )
        delays.append(time.perf_counter() - drawn[prompt])
        pairs = [
            (row["extra_logs"]["restrain/advantage_pos"], row["extra_logs"]["restrain/advantage_neg"]) for row in rows
        ]
        wrong += pairs != expected[prompt]
        if len(delays) * 4 >= len(texts):
            done.set()

    async def all_groups() -> list[Any]:
        actor = actor_of(texts, drawn)
        return await asyncio.gather(
            *[group(actor, number, prompt) for number, prompt in enumerate(texts)], return_exceptions=True
        )

    start = time.perf_counter()
    outcomes = asyncio.run(all_groups())
    lost = sum(isinstance(outcome, BaseException) for outcome in outcomes)
    return Outcome(time.perf_counter() - start, lost, wrong, delays)


def measure(
    folder: Path, replicas: int, kills: bool, texts: Any, expected: Any, rate: float | None
) -> tuple[Outcome, list[Service]]:
    """One run with so many replicas; none: in process."""
    (folder / "service.yaml").write_text(f"method: {METHOD}\n")
    services = [Service(folder / "service.yaml") for _ in range(replicas)]
    for service in services:
        service.start()
    quarter, ended = threading.Event(), threading.Event()

    def watch() -> None:
        killed = False
        while not ended.wait(0.05):
            if kills and quarter.is_set() and not killed:
                services[0].kill()
                services[0].start()
                killed = True
        assert killed or not kills, "the run was over before a replica could be killed"

    with RoundRobin([service.port for service in services]) as balancer:
        where = f"service: {balancer.url}\n" if services else ""
        (folder / "agent.yaml").write_text(f"method: {METHOD}\n{where}")
        os.environ["RESTRAIN_CONFIG"] = str(folder / "agent.yaml")
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            outcome = run(texts, expected, quarter, rate)
        finally:
            ended.set()
            watcher.join()
            for service in services:
                service.kill()
    return outcome, services


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=1024)
    parser.add_argument("--n", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--rate", type=float, default=50.0, help="groups a second of the paced runs")
    given = parser.parse_args()
    detect().install()
    texts = make_groups([f"Problem {number}: " for number in range(given.prompts)], given.n)
    expected = expected_pairs({prompt: [(text, True) for text in group] for prompt, group in texts.items()})
    settings = {"in process": (0, False), "1 replica": (1, False), "2 replicas": (2, False), "2, one killed": (2, True)}
    table = Table("scored by", "run", "lost", "wrong", "seconds", "p50, ms", "p99, ms", "MiB")
    paces = {"burst": None, "paced": given.rate}
    for name, pace in [(name, pace) for _ in range(given.repeats) for name in settings for pace in paces]:
        with tempfile.TemporaryDirectory() as folder:
            outcome, services = measure(Path(folder), *settings[name], texts, expected, paces[pace])
        cuts = [round(1000 * cut) for cut in statistics.quantiles(outcome.delays, n=100)]
        counts = (outcome.lost, outcome.wrong, round(outcome.seconds, 1), cuts[49], cuts[98])
        peaks = " + ".join(str(service.peak // 2**20) for service in services)
        table.add_row(name, pace, *map(str, counts), peaks)
    Console().print(table)


if __name__ == "__main__":
    main()
