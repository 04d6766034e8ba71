"""How long groups wait while latex2sympy2 is slow over other groups: threads for all, and slow ones apart, in turn.

`together` is one pool of threads for every group, as the service was; `apart` is what the service and the rollout
actors do. In each, slow groups come first (every answer an integral that takes latex2sympy2 too long), then quick ones,
one every 20 ms. The limit of a group's own time is lifted for `together`.
"""

import argparse
import asyncio
import math
import statistics
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count

from rich.console import Console
from rich.table import Table

from restrain_openrlhf.answers import residual
from restrain_openrlhf.method import GroupScore, build, parse_settings
from restrain_openrlhf.scoring import GroupScorer, score_whole_group
from restrain_openrlhf.scoring.threads import scored_in_a_thread
from restrain_openrlhf.scoring.wire import GroupRequest, GroupResponse

THREADS, PAUSE_SECONDS, LIMIT = 4, 0.02, residual.GROUP_SECONDS
SLOW = r"\int_{0}^{7} \sin(N x^x) dx"
SCORER = GroupScorer(build(parse_settings({"name": "ttrl"})))
Scored = Callable[[Callable[[], GroupScore]], Awaitable[GroupScore]]
NUMBERS = count(1)


@dataclass(frozen=True)
class Waits:
    """Seconds that each quick group took, and that all slow groups took together."""

    quick: list[float]
    slow: float

    def p99(self) -> float:
        """Milliseconds."""
        return 1000 * statistics.quantiles(self.quick, n=100)[98]


def group(answer: str, n: int) -> Callable[[], GroupScore]:
    """n responses with answers that no group had before: those that were read are remembered."""
    texts = [f"\\boxed{{{answer.replace('N', str(next(NUMBERS)))}}}" for _ in range(n)]
    responses = tuple(GroupResponse(text=text, finished=True) for text in texts)
    return partial(score_whole_group, SCORER, GroupRequest(prompt="", responses=responses))


async def measure(scored: Scored, slow: int, quick: int, n: int) -> Waits:
    """So many slow groups of n at once, and quick ones meanwhile."""
    start = time.perf_counter()
    waiting = [asyncio.ensure_future(scored(group(SLOW, n))) for _ in range(slow)]
    coming = [asyncio.ensure_future(wait_of(scored, PAUSE_SECONDS * place, n)) for place in range(1, quick + 1)]
    await asyncio.gather(*waiting)
    slow_seconds = time.perf_counter() - start
    return Waits(await asyncio.gather(*coming), slow_seconds)


async def wait_of(scored: Scored, pause: float, n: int) -> float:
    """Seconds that a quick group takes that comes after this pause."""
    await asyncio.sleep(pause)
    start = time.perf_counter()
    await scored(group("N", n))
    return time.perf_counter() - start


async def run(options: argparse.Namespace) -> tuple[Waits, Waits]:
    """Together, then apart."""
    sizes = (options.slow, options.quick, options.n)
    pool = ThreadPoolExecutor(THREADS)
    loop = asyncio.get_running_loop()
    residual.GROUP_SECONDS = math.inf
    together = await measure(lambda work: loop.run_in_executor(pool, work), *sizes)
    residual.GROUP_SECONDS = LIMIT
    return together, await measure(partial(scored_in_a_thread, quick=pool), *sizes)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slow", type=int, default=4, help="slow groups")
    parser.add_argument("--quick", type=int, default=100, help="quick groups")
    parser.add_argument("--n", type=int, default=8, help="answers of a group")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    residual.RESIDUAL.key("1")
    table = Table("", "p99 of quick groups, ms", "slow groups, s")
    ratios = []
    for repeat in range(options.repeats):
        together, apart = asyncio.run(run(options))
        ratios.append(together.p99() / apart.p99())
        for name, waits in (("together", together), ("apart", apart)):
            table.add_row(f"{name} {repeat + 1}", f"{waits.p99():.0f}", f"{waits.slow:.1f}")
    Console().print(table, f"p99 together / apart: {statistics.median(ratios):.0f} (median of {options.repeats})")


if __name__ == "__main__":
    main()
