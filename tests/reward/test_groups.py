"""What a rollout is answered: with its part of its group's score, whole groups together; rows with a label at once."""

import random

import pytest

from restrain_openrlhf.reward.protocol import EXPECTED_REWARD
from tests.reward.clients import RESTRAIN, Since, ask, expected, pairs, rollout, rollouts

pytestmark = pytest.mark.timeout(120)


def test_a_group_is_answered_together_as_the_trainers_scorer_would(standing, prompt):
    service = standing(method=RESTRAIN)
    replies = ask(service.reward_url, [*rollouts(prompt, (3, 3, 4)), rollout(prompt, 3, end="")])
    assert pairs(replies) == expected(["3", "3", "4", None])
    for reply, pair in zip(replies, pairs(replies), strict=True):
        assert reply.json()["rewards"] == reply.json()["scores"] == pytest.approx(sum(pair))


def test_twins_are_two_rollouts_and_groups_do_not_mix_whatever_the_order(standing, prompt):
    """Eight equal rollouts are two groups of their prompt; other prompts' groups have twins too."""
    service = standing(method=RESTRAIN)
    counted = Since(service)
    right = {prompt + "twins ": [(0, 0)] * 8, **{f"{prompt}{number} ": expected() for number in range(10)}}
    bodies = [body for name in right for body in rollouts(name, (1,) * 8 if "twins" in name else (3, 3, 4, 5))]
    wanted = [pair for group in right.values() for pair in group]
    order = random.Random(0).sample(range(len(bodies)), len(bodies))
    replies = pairs(ask(service.reward_url, [bodies[index] for index in order]))
    assert replies == [wanted[index] for index in order]
    assert counted('restrain_seats_total{kind="first"}') == counted("restrain_seats_total") == len(bodies)
    assert counted('restrain_groups_total{outcome="full"}') == 2 + 10


@pytest.mark.parametrize(("answer", "label", "reward"), [("0579", "579", 1), (578, 579, 0), (2, 2.0, 1)])
def test_an_evaluation_row_is_graded_at_once(standing, prompt, answer, label, reward):
    (reply,) = ask(standing(method=RESTRAIN).reward_url, [rollout(prompt, answer, end="", label=label)])
    assert reply.json() == {"rewards": reward, "scores": reward, "extra_logs": {}}


def other_choices(standing):
    return standing(labelled_rows="vote", reward="expected", stragglers="neutral", timing={"deadline": 2})


def test_labelled_rows_vote_and_the_expected_reward_is_sent_where_the_configuration_says_so(standing, prompt):
    replies = ask(other_choices(standing).reward_url, rollouts(prompt, (4, 4, 4, 3), label="3"))
    assert [pair[0] > 0 for pair in pairs(replies)] == [True, True, True, False]
    for reply, reward in zip(replies, [1, 1, 1, 0], strict=True):
        assert reply.json()["rewards"] == reply.json()["extra_logs"][EXPECTED_REWARD] == reward


def test_an_incomplete_group_is_neutral_where_the_configuration_says_so(standing, prompt):
    service = other_choices(standing)
    counted = Since(service)
    assert pairs(ask(service.reward_url, rollouts(prompt, (3, 3, 4)))) == [(0, 0)] * 3
    assert counted("restrain_neutral_rollouts_total") == 3
    assert counted('restrain_groups_total{outcome="neutral"}') == 1


def test_a_gold_method_gathers_its_labelled_rows_and_refuses_others(services):
    service = services.start(method={"name": "grpo_gold"}, probes=False)
    replies = ask(service.reward_url, rollouts("p", (4, 4, 4, 3), label=3))
    assert [pair[0] > 0 for pair in pairs(replies)] == [False, False, False, True]
    (refused,) = ask(service.reward_url, [rollout("p", 3)])
    assert refused.status_code == 409
    assert "learns from gold answers" in refused.json()["detail"]


def test_whole_groups_may_be_sent_in_one_call(standing):
    def responses(*answers):
        return [{"text": rf"\boxed{{{answer}}}<|im_end|>"} for answer in answers]

    groups = [
        {"prompt": "p", "responses": [*responses(3, 3, 4), {"text": r"\boxed{3}"}]},
        {"prompt": "q", "responses": [{**one, "finished": one["text"][7] == "1"} for one in responses(1, 1, 2)]},
    ]
    reply = standing(method=RESTRAIN).http.post("/v1/score", json={"groups": groups})
    first, second = reply.raise_for_status().json()["groups"]
    assert first["answers"] == ["3", "3", "4", None]
    found = list(zip(first["advantage_pos"], first["advantage_neg"], strict=True))
    assert found == expected(["3", "3", "4", None])
    assert (second["classes"], second["majority_count"]) == ([0, 0, None], 2)
