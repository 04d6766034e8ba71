"""POST /get_reward: groups are right and whole whoever comes, leaves and comes back; gold is never trained on."""

import asyncio
import random

import pytest

from restrain_openrlhf.errors import DataError
from restrain_openrlhf.scoring.service.get_reward import read_response
from restrain_openrlhf.scoring.wire import GroupResponse
from tests.scoring.service.clients import GROUP, RESTRAIN, Since, ask, connections, expected, pairs, rollout, rollouts

pytestmark = pytest.mark.timeout(300)

# A busy machine may take seconds to send four requests, and to ask again.
IMPATIENT = {"hold": 3, "retake": 60}


def test_a_group_is_answered_together_as_the_trainers_scorer_would(standing, prompt):
    service = standing(method=RESTRAIN)
    counted = Since(service)
    replies = ask(service.reward_url, [*rollouts(prompt, (3, 3, 4)), rollout(prompt, 3, end="")])
    assert pairs(replies) == expected(["3", "3", "4", None])
    for reply, pair in zip(replies, pairs(replies), strict=True):
        assert reply.json()["rewards"] == reply.json()["scores"] == pytest.approx(sum(pair))
    assert counted('restrain_requests_total{path="/get_reward",status="200"}') == 4
    assert counted('restrain_answers_total{kind="given"}') == 3
    assert counted('restrain_answers_total{kind="truncated"}') == 1
    assert counted('restrain_groups_total{outcome="full"}') == 1
    assert service.metric("restrain_pending_requests") == 0


def refusal(replies):
    """What all of the replies say."""
    assert {reply.status_code for reply in replies} == {409}
    (detail,) = {reply.json()["detail"] for reply in replies}
    return detail


def test_a_label_is_refused_where_nothing_says_what_it_is(services, prompt):
    service = services.start(method=RESTRAIN)
    labelled = rollouts(prompt, label=3)
    for before in ([], rollouts(prompt)):
        ask(service.reward_url, before)
        assert "leave data.label_key out" in refusal(ask(service.reward_url, labelled))
    (said,) = [event for event in service.events() if event["event"] == "labels"]
    assert said["level"] == "warning"
    assert "data.label_key" in said["detail"]


def test_whoever_loses_its_connection_takes_its_own_slot_again_in_any_order(standing, prompt):
    """Rollouts of twenty groups come, leave and come back at random; each group's last comes when all are back."""
    service, chance = standing(method=RESTRAIN), random.Random(0)
    counted, left = Since(service), 0
    names = [f"{prompt}{number} " for number in range(20)]
    outside = {(name, index): rollout(name, GROUP[index]) for name in names for index in range(3)}
    waiting: dict[tuple[str, int], asyncio.Task] = {}

    async def scenario():
        nonlocal left
        async with connections() as client:

            def come(places, bodies):
                for place in chance.sample(places, len(places)):
                    waiting[place] = asyncio.create_task(client.post(service.reward_url, json=bodies.pop(place)))

            for _ in range(4):
                come(chance.sample(sorted(outside), len(outside) // 2), outside)
                await counted.reaches("restrain_slots_total", left + len(waiting))
                for name, index in chance.sample(sorted(waiting), len(waiting) // 3):
                    waiting.pop((name, index)).cancel()
                    outside[name, index] = rollout(name, GROUP[index])
                    left += 1
                await counted.reaches("restrain_gone_requests_total", left)
            come(sorted(outside), outside)
            await counted.reaches("restrain_slots_total", left + len(waiting))
            last = {(name, 3): rollout(name, GROUP[3]) for name in names}
            come(sorted(last), last)
            return [await waiting[place] for place in sorted(waiting)]

    assert pairs(asyncio.run(scenario())) == expected() * len(names)
    assert counted('restrain_slots_total{kind="retry"}') == left
    assert counted('restrain_groups_total{outcome="full"}') == len(names)


def test_a_request_is_told_to_come_again_and_its_slot_is_kept_for_a_while(standing, prompt):
    service = standing(method=RESTRAIN, timing=IMPATIENT)
    counted = Since(service)
    (reply,) = ask(service.reward_url, [rollout(prompt, 3)])
    assert (reply.status_code, reply.headers["retry-after"]) == (409, "1")
    assert pairs(ask(service.reward_url, rollouts(prompt))) == expected()
    assert counted('restrain_slots_total{kind="retry"}') == 1


def test_the_deadline_ends_an_incomplete_group_and_its_late_rollout_is_neutral(standing, prompt):
    service = standing(method=RESTRAIN, timing={"deadline": 5})
    counted = Since(service)
    assert pairs(ask(service.reward_url, rollouts(prompt, (3, 3, 4)))) == expected((3, 3, 4))
    assert pairs(ask(service.reward_url, [rollout(prompt, 3)])) == [(0, 0)]
    assert counted('restrain_groups_total{outcome="partial"}') == 1
    assert counted('restrain_slots_total{kind="late"}') == counted("restrain_neutral_rollouts_total") == 1


ENDS = ("<|im_end|>", "<|box|>")


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (r"so \boxed{34}<|im_end|>", GroupResponse(text=r"so \boxed{34}", finished=True)),
        (r"so \boxed{34} and", GroupResponse(text=r"so \boxed{34} and", finished=False)),
        (r"so \boxed{3<|box|>4}<|im_end|>", GroupResponse(text=r"so \boxed{34}", finished=True)),
        ("", GroupResponse(text="", finished=False)),
    ],
)
def test_the_text_is_the_responses_own(response, expected):
    assert read_response(r"Put it in \boxed{}. " + response, r"Put it in \boxed{}. ", ENDS) == expected


def test_without_known_ends_nothing_counts_as_truncated():
    assert read_response("p3 and", "p", ()) == GroupResponse(text="3 and", finished=True)


def test_a_prompt_whose_beginning_was_cut_is_found_by_its_end():
    prompt = r"\boxed{1}" * 100 + " what is 1+1?"
    assert read_response(prompt[300:] + " 2", prompt, ()).text == " 2"


@pytest.mark.parametrize(("query", "prompt"), [("other text", "prompt"), ("", "p")])
def test_a_query_without_its_prompt_is_refused(query, prompt):
    with pytest.raises(DataError, match="does not begin with its prompt"):
        read_response(query, prompt, ENDS)
