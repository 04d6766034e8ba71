"""Answers that latex2sympy2 is slow over cost their own group its votes, after a limit, and no other group its time."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import pytest

from restrain_openrlhf.answers import residual
from restrain_openrlhf.answers.residual import RESIDUAL
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.scoring.scorer import GroupScorer, score_whole_group, scored_in_a_thread
from restrain_openrlhf.scoring.wire import GroupRequest, GroupResponse

SCORER = GroupScorer(build(parse_settings({"name": "ttrl"})))


class Slow:
    """In the place of latex2sympy2's process: every answer takes it too long, and as long as `may_end` is not set."""

    is_ready = True
    asked, now = 0, 0.0

    def __init__(self):
        self.begun, self.may_end = threading.Event(), threading.Event()

    def ask(self, question, seconds):
        self.asked += 1
        self.now += residual.DEADLINE_SECONDS
        self.begun.set()
        self.may_end.wait()
        raise TimeoutError

    def close(self):
        pass


@pytest.fixture
def slow(monkeypatch):
    worker = Slow()
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
    slow.may_end.set()
    answers = integrals("x", 9)
    score = scoring(*answers, answers[-1])()
    assert slow.asked == 4, "after the fourth the limit is passed"
    assert score.residual_timeouts == 9
    assert sorted(score.votes.counts) == [1] * 8 + [2], "the same text is the same vote"
    after = scoring(*integrals("y", 1))()
    assert (slow.asked, after.residual_timeouts) == (5, 1), "the next group has its own"


def test_quick_groups_do_not_wait_for_slow_ones(slow):
    """Four slow groups would have the thread of a rollout actor until the last of them has been read."""

    async def scored():
        with ThreadPoolExecutor(1) as quick:
            works = [scoring(*integrals(name, 4)) for name in "abcd"]
            slow_ones = [asyncio.ensure_future(scored_in_a_thread(work, quick)) for work in works]
            await asyncio.to_thread(slow.begun.wait)
            try:
                async with asyncio.timeout(60):
                    await scored_in_a_thread(scoring("1", "2", "2"), quick)
                assert not any(one.done() for one in slow_ones)
            finally:
                slow.may_end.set()
            return await asyncio.gather(*slow_ones)

    scores = asyncio.run(scored())
    assert [score.residual_timeouts for score in scores] == [4] * 4


def test_a_group_that_needs_latex2sympy2_gets_its_keys():
    """By the real process: the group begins anew in another thread."""
    score = asyncio.run(scored_in_a_thread(scoring(r"\sum_{k=1}^{9} k", "45", "44")))
    assert sorted(score.votes.counts) == [1, 2]
