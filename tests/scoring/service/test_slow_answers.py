"""Answers that latex2sympy2 is slow over cost their own group its votes, after a limit, and no other group its time."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import pytest

from restrain_openrlhf.answers import residual
from restrain_openrlhf.answers.residual import RESIDUAL
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.scoring.scorer import GroupScorer, score_whole_group, scored_in_a_thread
from restrain_openrlhf.scoring.wire import GroupRequest, GroupResponse

SECONDS = 0.05
SCORER = GroupScorer(build(parse_settings({"name": "ttrl"})))


class Sleeping:
    """In the place of latex2sympy2's process: every answer takes it too long."""

    is_ready = True
    asked, now = 0, 0.0

    def ask(self, text, seconds):
        self.asked += 1
        self.now += seconds
        time.sleep(SECONDS)
        raise TimeoutError

    def close(self):
        pass


@pytest.fixture
def slow(monkeypatch):
    worker = Sleeping()
    monkeypatch.setattr(RESIDUAL, "_worker", worker)
    return worker


def scoring(*answers):
    responses = tuple(GroupResponse(text=f"\\boxed{{{answer}}}", finished=True) for answer in answers)
    return partial(score_whole_group, SCORER, GroupRequest(prompt="", responses=responses))


def integrals(name, n):
    """Answers that no other test has: those that were read are remembered."""
    return [rf"\int_{{0}}^{{{place}}} \sin(x^x) d{name}" for place in range(1, n + 1)]


def test_a_groups_answers_have_a_limit_together_and_the_rest_vote_as_text(slow, monkeypatch):
    monkeypatch.setattr(residual, "GROUP_SECONDS", 3.5 * residual.DEADLINE_SECONDS)
    monkeypatch.setattr(residual, "time", SimpleNamespace(monotonic=lambda: slow.now))
    answers = integrals("x", 9)
    score = scoring(*answers, answers[-1])()
    assert slow.asked == 4, "after the fourth the limit is passed"
    assert score.residual_timeouts == 9
    assert sorted(score.votes.counts) == [1] * 8 + [2], "the same text is the same vote"
    after = scoring(*integrals("y", 1))()
    assert (slow.asked, after.residual_timeouts) == (5, 1), "the next group has its own"


def test_quick_groups_do_not_wait_for_slow_ones(slow):
    """Four slow groups would have the thread of a rollout actor for their 16 × 0.05 s."""

    async def waits():
        with ThreadPoolExecutor(1) as quick:
            works = [scoring(*integrals(name, 4)) for name in "abcd"]
            slow_ones = [asyncio.ensure_future(scored_in_a_thread(work, quick)) for work in works]
            await asyncio.sleep(2 * SECONDS)
            start = time.perf_counter()
            await scored_in_a_thread(scoring("1", "2", "2"), quick)
            waited = time.perf_counter() - start
            scores = await asyncio.gather(*slow_ones)
        return waited, time.perf_counter() - start, scores

    waited, whole, scores = asyncio.run(waits())
    assert waited < whole / 4
    assert [score.residual_timeouts for score in scores] == [4] * 4


def test_a_group_that_needs_latex2sympy2_gets_its_keys():
    """By the real process: the group begins anew in another thread."""
    score = asyncio.run(scored_in_a_thread(scoring(r"\sum_{k=1}^{9} k", "45", "44")))
    assert sorted(score.votes.counts) == [1, 2]
