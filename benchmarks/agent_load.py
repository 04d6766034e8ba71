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
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import psutil
import torch
from rich.console import Console
from rich.table import Table
from round_robin import RoundRobin

from restrain_openrlhf.hook.devices import detect

METHOD = "{name: restrain, prompt_weight: online, kappa: 3}"
WORDS = ("so", "we", "add", "and", "carry", "to", "find", "that", "the", "sum", "of", "both", "is", "asked", "for")
RESPONSE_WORDS = 300
EOS = 0


@dataclass
class Service:
    """`restrain serve` on a port, with the most memory that it was seen to use."""

    config: Path
    port: int
    peak: int = 0
    process: "subprocess.Popen[bytes]" = field(init=False)

    def start(self) -> None:
        """Until it is ready."""
        words = ["serve", "--config", str(self.config), "--port", str(self.port)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "restrain_openrlhf.cli.main", *words], stderr=subprocess.DEVNULL
        )
        while True:
            try:
                urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5).close()
                return
            except (URLError, OSError):
                time.sleep(0.05)

    def look(self) -> None:
        """Note its memory."""
        try:
            self.peak = max(self.peak, psutil.Process(self.process.pid).memory_info().rss)
        except psutil.NoSuchProcess:
            return

    def kill(self) -> None:
        """SIGKILL."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Letters:
    """Token i is the character chr(i), 0 the end."""

    all_special_ids = (EOS,)

    def __call__(self, text: str, add_special_tokens: bool, return_tensors: str) -> dict[str, Any]:
        return {"input_ids": torch.tensor([[ord(letter) for letter in text]])}

    def decode(self, tokens: list[int], skip_special_tokens: bool) -> str:
        return "".join(chr(token) for token in tokens if token != EOS)


def make_texts(prompts: int, n: int) -> dict[str, list[str]]:
    """Responses with a common answer of varying share, some rare answers, some duplicates."""
    chance = random.Random(0)
    texts = {}
    for number in range(prompts):
        share = chance.random()
        answers = [7 if chance.random() < share else chance.randrange(100) for _ in range(n)]
        words = [" ".join(chance.choices(WORDS, k=RESPONSE_WORDS)) for _ in range(n)]
        texts[f"Problem {number}: "] = [rf"{w} \boxed{{{answer}}}" for w, answer in zip(words, answers, strict=True)]
    return texts


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
    done: "threading.Event",
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


def free_port() -> int:
    """A port that nobody has now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def expected_pairs(texts: dict[str, list[str]]) -> dict[str, list[tuple[float, float]]]:
    """The scorer's own."""
    import yaml

    from restrain_openrlhf.method import build, parse_settings
    from restrain_openrlhf.reward.whole_group import score_whole_group
    from restrain_openrlhf.reward.wire import GroupRequest
    from restrain_openrlhf.scoring import GroupScorer

    scorer = GroupScorer(build(parse_settings(yaml.safe_load(METHOD))))
    pairs = {}
    for prompt, responses in texts.items():
        request = GroupRequest(prompt=prompt, responses=[{"text": text, "finished": True} for text in responses])
        reply = score_whole_group(scorer, request)
        pairs[prompt] = list(zip(reply.advantage_pos, reply.advantage_neg, strict=True))
    return pairs


def measure(
    folder: Path, replicas: int, kills: bool, texts: Any, expected: Any, rate: float | None
) -> tuple[Outcome, list[Service]]:
    """One run with so many replicas; none: in process."""
    (folder / "service.yaml").write_text(f"method: {METHOD}\n")
    services = [Service(folder / "service.yaml", free_port()) for _ in range(replicas)]
    for service in services:
        service.start()
    quarter, ended = threading.Event(), threading.Event()

    def watch() -> None:
        killed = False
        while not ended.wait(0.05):
            for service in services:
                service.look()
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
    texts = make_texts(given.prompts, given.n)
    expected = expected_pairs(texts)
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
