"""What keeping rollouts costs a step: time beside OpenRLHF's own optimizer pass, bytes on disk, and long responses.

Keeping is what the groups' texts add to the way from a rollout actor to the trainer (pickled and unpickled), each
rollout's own gap, and the step's file: rows, compression, writing, fsync. All is counted as if it ran one after the
other, though carrying is shared by the rollout actors. Responses are words drawn at random.
"""

import pickle
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from hook_cost import PROMPTS, N, optimizer_pass, prepare
from rich.console import Console
from rich.progress import track

from restrain_openrlhf.config.kept_rollouts import KeepRollouts
from restrain_openrlhf.hook.devices import detect
from restrain_openrlhf.hook.instrument import install

REPEATS = 7
LETTERS_PER_TOKEN = 4


@dataclass(frozen=True)
class Size:
    """A step's rollouts: groups of 16, each of so many tokens."""

    name: str
    groups: int
    tokens: int


SHORT = Size("the demo's", PROMPTS, 32)
SIZES = (SHORT, Size("the paper's", 64, 1_200), Size("long", 32, 8_192))


@dataclass(frozen=True)
class Cost:
    """Seconds of a step's three parts, and the bytes of its file."""

    carrying: float
    gaps: float
    writing: float
    size: int

    @property
    def seconds(self) -> float:
        """Of the whole."""
        return self.carrying + self.gaps + self.writing


def main() -> None:
    """Measure and print."""
    text = sentences(random.Random(0))
    console = Console(soft_wrap=True, highlight=False)
    detect().install()
    install()
    _, trainer, experiences = prepare(256, 4)
    # It leaves the host unhooked.
    install()
    short = Step.of(SHORT, text)
    passes, costs = [], []
    for repeat in track(range(REPEATS + 1), "beside the optimizer pass"):
        passes += [optimizer_pass(trainer, experiences(hooked=True))][: bool(repeat)]
        costs += [short.cost(KeepRollouts())][: bool(repeat)]
    shares = [cost.seconds / one for cost, one in zip(costs, passes, strict=True)]
    console.print(
        f"optimizer pass over {PROMPTS * N} rollouts of {SHORT.tokens} tokens: {statistics.median(passes):.2f} s\n"
        f"keeping, at the default: {statistics.median(shares):.2%} of it (median of {REPEATS}; single repeats: "
        f"{', '.join(f'{share:.2%}' for share in shares)})"
    )
    for size in SIZES:
        step = Step.of(size, text)
        for keep in (KeepRollouts(), without_bound("all")):
            console.print(line(size, keep, [step.cost(keep) for _ in range(REPEATS + 1)][1:]))


def without_bound(keep: Any) -> KeepRollouts:
    """Without a bound."""
    return KeepRollouts(keep=keep, at_most_mib=None)


def line(size: Size, keep: KeepRollouts, costs: list[Cost]) -> str:
    """One size's medians."""
    middle = {
        name: statistics.median(getattr(cost, name) for cost in costs) for name in ("carrying", "gaps", "writing")
    }
    seconds = sorted(cost.seconds for cost in costs)
    return (
        f"{size.name}, {size.groups} x {N} rollouts of {size.tokens} tokens, keep {keep.keep}: "
        f"{statistics.median(seconds):.3f} s ({seconds[0]:.3f} to {seconds[-1]:.3f}; "
        f"carrying {middle['carrying']:.3f}, gaps {middle['gaps']:.3f}, writing {middle['writing']:.3f}), "
        f"{costs[0].size / 1e6:.2f} MB a step; "
        f"1 % of a step of {100 * statistics.median(seconds):.0f} s"
    )


@dataclass(frozen=True)
class Step:
    """A step's scored groups, and its rollouts as the trainer has them."""

    size: Size
    groups: list[Any]
    experiences: list[Any]

    @classmethod
    def of(cls, size: Size, text: Iterator[str]) -> "Step":
        """Groups scored by RESTRAIN."""
        import torch

        shape = (N, size.tokens)
        experiences = [
            SimpleNamespace(
                index=list(range(place * N, place * N + N)),
                action_mask=torch.ones(shape, dtype=torch.long),
                rollout_log_probs=torch.rand(shape),
                action_log_probs=torch.rand(shape),
            )
            for place in range(size.groups)
        ]
        return cls(size, [scored(size, text, place) for place in range(size.groups)], experiences)

    def cost(self, keep: KeepRollouts) -> Cost:
        """What keeping takes of this step."""
        from restrain_openrlhf.hook.experience import rollout_gaps
        from restrain_openrlhf.hook.keeping import Keeping

        with TemporaryDirectory(dir=Path.cwd()) as folder:
            with timed() as carrying:
                for group in self.groups:
                    pickle.loads(pickle.dumps(group, protocol=5))
            with timed() as gaps:
                each = rollout_gaps(self.experiences)
            with timed() as writing:
                Keeping(Path(folder), keep, seed=42).keep(1, self.groups, each)
            (path,) = (Path(folder) / "rollouts").iterdir()
            return Cost(carrying.seconds, gaps.seconds, writing.seconds, path.stat().st_size)


def scored(size: Size, text: Iterator[str], place: int) -> Any:
    """One scored group of 16 responses."""
    from restrain_openrlhf.hook.scored_groups import ScoredGroup
    from restrain_openrlhf.method import build, parse_settings
    from restrain_openrlhf.reward.whole_group import score_whole_group
    from restrain_openrlhf.reward.wire import GroupRequest, GroupResponse
    from restrain_openrlhf.scoring import GroupScorer

    scorer = GroupScorer(build(parse_settings({"name": "restrain", "prompt_weight": "online"})))
    responses = [f"{response_text(size, text)} \\boxed{{{index % 5}}}" for index in range(N)]
    request = GroupRequest(
        prompt=f"Problem {place}: what is the sum?",
        responses=tuple(GroupResponse(text=response, finished=True) for response in responses),
    )
    return ScoredGroup(request, score_whole_group(scorer, request))


def response_text(size: Size, text: Iterator[str]) -> str:
    """About as many letters as so many tokens have."""
    letters, pieces = size.tokens * LETTERS_PER_TOKEN, []
    while sum(map(len, pieces)) < letters:
        pieces.append(next(text))
    return " ".join(pieces)[:letters]


def sentences(chance: random.Random) -> Iterator[str]:
    """Words drawn at random, common ones more often; without end."""
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(5_000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    while True:
        yield " ".join(chance.choices(words, weights, k=40)) + f" = {chance.randint(0, 999)}."


@dataclass
class Timer:
    """Wall-clock seconds of a block."""

    seconds: float = 0.0


@contextmanager
def timed() -> Iterator[Timer]:
    """The block's seconds are in the timer once it is over."""
    timer, start = Timer(), time.perf_counter()
    yield timer
    timer.seconds = time.perf_counter() - start


if __name__ == "__main__":
    main()
