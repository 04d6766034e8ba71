"""Scores groups and grades evaluation rows off the event loop, with the trainer's own scorer."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from restrain_openrlhf.answers.evaluation import is_right
from restrain_openrlhf.errors import RestrainError
from restrain_openrlhf.method import GroupScore
from restrain_openrlhf.reward.logs import Log, where
from restrain_openrlhf.reward.metrics import Metrics
from restrain_openrlhf.reward.protocol import GroupResponse
from restrain_openrlhf.reward.seats import Group, GroupResult
from restrain_openrlhf.reward.transcript import Response, ResponseReader
from restrain_openrlhf.scoring import GroupScorer

T = TypeVar("T")


def digest_order(group: Group) -> list[int]:
    """Indices of the seats, by the digest of their rollouts."""
    return sorted(range(len(group.seats)), key=lambda index: (group.seats[index].text, index))


def arrival_order(group: Group) -> list[int]:
    """For each seat its place in the digest order: the inverse of it."""
    order = digest_order(group)
    return sorted(range(len(order)), key=order.__getitem__)


@dataclass
class Judge:
    """A scorer and a reader with threads of their own; `neutral_stragglers`: incomplete groups get no advantage."""

    scorer: GroupScorer
    reader: ResponseReader
    metrics: Metrics
    log: Log
    threads: int
    neutral_stragglers: bool = False
    _pool: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="score")

    async def off_loop(self, work: Callable[[], T]) -> T:
        """Run it in one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def check(self, prompt: str, gold: str | None) -> None:
        """Raises what scoring a group of this prompt would raise, before anyone waits for it."""
        self.scorer.check(prompt, gold)

    async def read(self, query: str, prompt: str) -> Response:
        """The response of a query. Raises DataError where it cannot be told from the prompt."""
        response = await self.off_loop(lambda: self.reader.read(query, prompt))
        self._count(response)
        return response

    def _count(self, response: Response) -> None:
        kind = "truncated" if response.truncated else "missing" if response.answer is None else "given"
        self.metrics.answers.labels(kind).inc()

    async def grade(self, query: str, prompt: str, gold: str) -> float:
        """1 or 0: whether the response is right, as `restrain eval` grades it."""
        correct = await self.off_loop(lambda: is_right(self.reader.answer(query, prompt), gold))
        self.metrics.evaluated.labels(str(correct).lower()).inc()
        return float(correct)

    async def score_group(self, prompt: str, gold: str | None, group: Group) -> GroupResult:
        """The result of a gathered group; a group that cannot be scored has the reason in it."""
        if group.partial and self.neutral_stragglers:
            self.metrics.groups.labels("neutral").inc()
            return GroupResult(neutral=True)
        since = time.perf_counter()
        try:
            score = await self.off_loop(lambda: self._score(prompt, group, gold))
        except RestrainError as error:
            self.metrics.groups.labels("failed").inc()
            self.log.warning("group_failed", kind=type(error).__name__)
            return GroupResult(problem=str(error))
        except Exception as error:  # noqa: BLE001 - sixteen requests wait for an answer, whatever went wrong
            self.metrics.groups.labels("failed").inc()
            self.log.error("group_failed", kind=type(error).__name__, where=where(error))
            return GroupResult(problem="The service could not score this group; its log says more.")
        self.metrics.scored(score, group.partial, since)
        return GroupResult.of(score, arrival_order(group))

    def _score(self, prompt: str, group: Group, gold: str | None) -> GroupScore:
        """In the order of the rollouts' digests, so that ties do not depend on who came first."""
        return self.scorer.score(prompt, [group.seats[index].answer for index in digest_order(group)], gold)

    async def score_responses(
        self, prompt: str, responses: Sequence[GroupResponse], gold: str | None
    ) -> tuple[list[str | None], GroupScore]:
        """A whole group at once: its answers and its score. Raises a RestrainError where it cannot be scored."""

        def work() -> tuple[list[str | None], GroupScore]:
            answers = [self.reader.read_response(response.text, response.finished).answer for response in responses]
            return answers, self.scorer.score(prompt, answers, gold)

        since = time.perf_counter()
        answers, score = await self.off_loop(work)
        self.metrics.scored(score, partial=False, since=since)
        return answers, score

    def close(self) -> None:
        """End the threads; what has not begun is dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)
