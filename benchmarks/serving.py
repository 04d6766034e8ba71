"""What the two benchmarks of the service share: made-up groups with their scores, and `restrain serve` as a process."""

import contextlib
import random
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

import yaml

from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.scoring import GroupScorer, score_whole_group
from restrain_openrlhf.scoring.wire import GroupRequest

METHOD = "{name: restrain, prompt_weight: online, kappa: 3}"
WORDS = ("so", "we", "add", "and", "carry", "to", "find", "that", "the", "sum", "of", "both", "is", "asked", "for")
RESPONSE_WORDS = 300


def make_groups(prompts: Sequence[str], n: int) -> dict[str, list[str]]:
    """Responses by prompt, always the same: a common answer of varying share, and some rare ones."""
    chance = random.Random(0)
    groups = {}
    for prompt in prompts:
        share = chance.random()
        answers = [7 if chance.random() < share else chance.randrange(100) for _ in range(n)]
        words = [" ".join(chance.choices(WORDS, k=RESPONSE_WORDS)) for _ in range(n)]
        groups[prompt] = [rf"{text} \boxed{{{answer}}}" for text, answer in zip(words, answers, strict=True)]
    return groups


def expected_pairs(groups: Mapping[str, Sequence[tuple[str, bool]]]) -> dict[str, list[tuple[float, float]]]:
    """The scorer's own advantages of responses (text, finished)."""
    scorer, pairs = GroupScorer(build(parse_settings(yaml.safe_load(METHOD)))), {}
    for prompt, responses in groups.items():
        asked = [{"text": text, "finished": finished} for text, finished in responses]
        reply = score_whole_group(scorer, GroupRequest.model_validate({"prompt": prompt, "responses": asked}))
        pairs[prompt] = list(zip(reply.pair.positive.tolist(), reply.pair.negative.tolist(), strict=True))
    return pairs


@dataclass
class Service:
    """`restrain serve` of a YAML file on a free port, with the most memory (bytes) that it has used."""

    config: Path
    port: int = field(init=False)
    peak: int = 0
    process: "subprocess.Popen[bytes]" = field(init=False)

    def __post_init__(self) -> None:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = one.getsockname()[1]

    def start(self) -> None:
        """Until it is ready."""
        where = ["--config", str(self.config), "--port", str(self.port)]
        words = ["-m", "restrain_openrlhf.commands.main", "serve", *where]
        self.process = subprocess.Popen([sys.executable, *words], stderr=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with contextlib.suppress(OSError), urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5):
                return
            time.sleep(0.05)
        raise SystemExit(f"port {self.port}: the service does not answer")

    def kill(self) -> None:
        """SIGKILL, with its memory noted."""
        status = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        kibibytes = next((int(line.split()[1]) for line in status if line.startswith("VmHWM")), 0)
        self.peak = max(self.peak, kibibytes * 1024)
        self.process.kill()
        self.process.wait()
