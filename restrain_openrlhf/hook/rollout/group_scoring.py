"""Scores groups for the agent: in a thread of this process, or by asking a service once for each group."""

import asyncio
import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp
from pydantic import ValidationError

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, Row
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.errors import RestrainError, ScoreServiceError
from restrain_openrlhf.method import GroupScore, Method, build
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.artifact import NeededReference, refuse_mismatch
from restrain_openrlhf.reference.prompts import PromptRows
from restrain_openrlhf.scoring.scorer import GroupScorer, score_whole_group
from restrain_openrlhf.scoring.service.service_config import load_token
from restrain_openrlhf.scoring.wire import GroupRequest, GroupResponse, ScoreReply, ScoreRequest

TRY_SECONDS = 120.0
PATIENCE_SECONDS, TRIAL_SECONDS = 900.0, 60.0
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
# Replies of a service that is full, stopping or faulty. A later try, perhaps at another replica, may succeed.
WORTH_ANOTHER_TRY = frozenset({408, 429, 500, 502, 503, 504})


def scoring_of(config: HookConfig) -> "InProcess | ScoreService":
    """Where the configuration has groups scored. Raises a RestrainError for an unusable reference or token."""
    if config.service is not None:
        return ScoreService.of(config, config.service)
    reference = load_reference(config.reference) if config.reference else None
    method = build(config.method)
    rows = PromptRows.of(config.answer_rows, config.answers, method.reads_gold)
    config.answers.check(rows.rows.values())
    return InProcess(GroupScorer(method, reference, config.answers, rows))


@dataclass(frozen=True)
class InProcess:
    """Scores groups in one thread."""

    scorer: GroupScorer
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="score"))

    async def score(self, group: GroupRequest, needed: NeededReference | None = None) -> GroupScore:
        """The group's score.

        Raises a RestrainError if there is none, or the reference is not the one that is needed.
        """
        if needed is not None and self.scorer.reference is not None:
            refuse_mismatch(self.scorer.reference, needed)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.thread, score_whole_group, self.scorer, group)


@dataclass(frozen=True)
class ScoreService:
    """Asks `POST {url}/v1/score` (docs/operations/reward_service.md), which is stateless, so it can be asked again."""

    url: str
    method: Mapping[str, Any]
    kind: AnswerKind = MATHEMATICS
    token: str | None = None
    patience: float = PATIENCE_SECONDS

    @classmethod
    def of(cls, config: HookConfig, url: str, patience: float = PATIENCE_SECONDS) -> Self:
        """The service at `url` for a configuration. Raises ConfigError if the token cannot be used."""
        return cls(url, config.method.model_dump(mode="json"), config.answers, load_token(None), patience)

    async def score(self, group: GroupRequest, needed: NeededReference | None = None) -> GroupScore:
        """The group's score.

        Raises ScoreServiceError if the service refuses, or gives no answer for `patience` s.
        """
        body = ScoreRequest(groups=(group,), method=dict(self.method), reference=needed).model_dump_json().encode()
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + self.patience, FIRST_PAUSE
        while True:
            try:
                return self._group_of(await self._post(body), needed)
            except (aiohttp.ClientError, TimeoutError, _TryAgainError) as error:
                found = str(error) or type(error).__name__
            rest = until - loop.time()
            if rest <= 0:
                raise ScoreServiceError(
                    f"The scoring service at {self.url} gave no answer for {self.patience:g} s; the last attempt "
                    f"found: {found}. Look at its log and at /readyz, then start the run again: it resumes from its "
                    "last checkpoint."
                )
            # Pauses grow, and are random, so that clients do not all come back at the same time.
            await asyncio.sleep(min(rest, pause * random.uniform(0.5, 1.5)))
            pause = min(2 * pause, LONGEST_PAUSE)

    def check(self, method: Method, prompt: str, n: int, needed: NeededReference, row: Row | None = None) -> None:
        """Let the service score a group of n rollouts without answers, before anything heavy starts.

        Raises ScoreServiceError if the service does not answer, or would refuse the run's groups: it has another
        method or token, or a reference that was not made as `needed`, lacks the prompt or has another row of it.
        """
        plan = method.rollouts
        voters, trained = (plan.voters, plan.trained) if plan is not None else (n, n)
        group = GroupRequest(
            prompt=prompt,
            row=None if row is None else dict(row),
            responses=(GroupResponse(text="", finished=False),) * voters,
            gold="0" if method.reads_gold else None,
            entropies=(1.0,) * trained if plan is not None and plan.top_k else None,
        )
        asyncio.run(self.score(group, needed if method.needs_reference else None))

    async def _post(self, body: bytes) -> str:
        headers = {"Content-Type": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        # Each group has its own connection, so that a load balancer can give it to any replica.
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TRY_SECONDS)) as session,
            session.post(f"{self.url}/v1/score", data=body, headers=headers) as reply,
        ):
            text = await reply.text(errors="replace")
            if reply.status in WORTH_ANOTHER_TRY:
                raise _TryAgainError(f"status {reply.status}: {text[:200]}")
            if not reply.ok:
                raise ScoreServiceError(f"The scoring service at {self.url} answers {reply.status}: {text[:500]}")
        return text

    def _group_of(self, text: str, needed: NeededReference | None) -> GroupScore:
        try:
            reply = ScoreReply.model_validate_json(text)
            (scored,) = reply.groups
        except (ValidationError, ValueError):
            raise ScoreServiceError(
                f"{self.url}/v1/score replied with something other than scores: {text[:100]!r}. Set `service` to the "
                "address of a `restrain serve` of the same version as this project."
            ) from None
        if needed is not None and not reply.reference_compared:
            raise ScoreServiceError(
                f"The scoring service at {self.url} runs an earlier version, which does not compare its reference "
                "with this run. Install this version of restrain-openrlhf there."
            )
        if reply.answers != self.kind.identity:
            raise ScoreServiceError(
                f"The scoring service at {self.url} reads answers as {reply.answers!r}, but this run reads them as "
                f"{self.kind.identity!r}. Give both the same `answers:` block and the same version of this project."
            )
        return scored.score()


class _TryAgainError(RestrainError):
    """The service replied that it cannot score now."""
