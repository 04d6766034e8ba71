"""A prompt's rollouts become one group: by the host's own actor and executor, whatever goes on beside it."""

import asyncio
import random
from collections import Counter

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from openrlhf.trainer.ray.vllm_engine import RolloutRayActor
from vllm import SamplingParams

from restrain_openrlhf.errors import GraderError, GroupError
from restrain_openrlhf.hook import agent
from restrain_openrlhf.hook.rollout.rollout_engine import GroupGathering
from tests.hook.in_process import asked, written

PROMPT = "1+1="


class Actor(RolloutRayActor.__ray_metadata__.modified_class):
    """The host's actor over an engine that writes a digit after a while, or at once, and may fail."""

    def __init__(self, seconds=lambda: random.random() / 100, fails_at=None):
        self.executor = agent.AgentExecutor()
        self.seconds, self.fails_at, self.requests = seconds, fails_at, 0

    async def generate(self, prompt_token_ids, sampling_params, multi_modal_data=None):
        self.requests += 1
        request = self.requests
        if (seconds := self.seconds()) is not None:
            await asyncio.sleep(seconds)
        if request == self.fails_at:
            raise RuntimeError("the engine failed")
        return written(rf"\boxed{{{request % 3}}}", sampling_params)

    def draw(self, n, prompt=PROMPT, parameters=None):
        return asked(self, prompt, "", n, parameters or SamplingParams(max_tokens=16))


@pytest.fixture(autouse=True)
def ttrl(agent_alone):
    agent_alone("method: {name: ttrl}")


@pytest.fixture
def scored(monkeypatch):
    """The sizes of the groups that were scored."""
    sizes, inner = [], agent.columns

    def noted(request, reply):
        sizes.append(len(request.responses))
        return inner(request, reply)

    monkeypatch.setattr(agent, "columns", noted)
    return sizes


@pytest.mark.parametrize("size", [4, 16])
@pytest.mark.parametrize("seconds", [lambda: random.random() / 100, lambda: 0, lambda: None], ids=["slow", "0", "now"])
def test_many_groups_of_one_prompt_at_once_are_each_closed_once_and_none_is_mixed(scored, seconds, size):
    async def draw_all():
        actor = Actor(seconds)
        return await asyncio.gather(*[actor.draw(n) for n in sizes])

    sizes = [size] * 125
    groups = asyncio.run(draw_all())
    assert Counter(scored) == Counter(sizes)
    assert [len(group) for group in groups] == sizes
    for group in groups:
        assert {row["extra_logs"]["restrain/voters"] for row in group} == {float(size)}
        assert sum(row["reward"] for row in group) == pytest.approx(0, abs=1e-9)


def test_two_prompts_with_the_same_parameters_at_once_are_refused():
    async def both():
        actor, parameters = Actor(), SamplingParams(max_tokens=16)
        return await asyncio.gather(*[actor.draw(4, prompt, parameters) for prompt in ("a", "b")])

    with pytest.raises(GroupError, match="gave two prompts the same sampling_params object, 'a' and 'b'"):
        asyncio.run(both())


async def members(n, draw, cancelled=None):
    """What each member gets, an error included; the one at `cancelled` is cancelled while the group is drawn."""
    gathering, shared = GroupGathering(), object()
    tasks = [asyncio.create_task(gathering.member(shared, PROMPT, draw)) for _ in range(n)]
    if cancelled is not None:
        await asyncio.sleep(0.01)
        tasks[cancelled].cancel()
    async with asyncio.timeout(60):
        return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("error", [RuntimeError("x"), GraderError("away")])
def test_what_drawing_or_scoring_raises_reaches_every_member(error):
    async def draw(n):
        await asyncio.sleep(0)
        raise error

    assert asyncio.run(members(4, draw)) == [error] * 4


@pytest.mark.parametrize("cancelled", [0, 2])
def test_a_member_that_is_cancelled_ends_the_others_with_the_reason(cancelled):
    async def draw(n):
        await asyncio.sleep(60)

    outcomes = asyncio.run(members(3, draw, cancelled))
    assert isinstance(outcomes.pop(cancelled), asyncio.CancelledError)
    assert [type(outcome) for outcome in outcomes] == [GroupError] * 2
    assert "Another rollout of the prompt '1+1=' was cancelled" in str(outcomes[0])


def test_an_engine_that_fails_in_the_middle_of_a_group_fails_the_group_and_no_other(scored):
    async def draw_both():
        actor = Actor(lambda: 0.01, fails_at=3)
        return await asyncio.gather(actor.draw(4), actor.draw(4), return_exceptions=True)

    failed, whole = asyncio.run(draw_both())
    assert str(failed) == "the engine failed"
    assert len(whole) == 4
    assert scored == [4]


def test_generation_that_is_cancelled_ends_the_engines_requests():
    async def run():
        actor = Actor(lambda: 60)
        drawing = asyncio.create_task(actor.draw(4))
        await asyncio.sleep(0.05)
        drawing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await drawing
        await asyncio.sleep(0.05)
        return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    assert asyncio.run(run()) == []


def test_one_rollout_is_no_group():
    with pytest.raises(GroupError, match="drew a single rollout for the prompt '1\\+1=', but a vote needs a group"):
        asyncio.run(Actor().draw(1))
