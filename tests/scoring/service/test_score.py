"""POST /v1/score: what scoring in process gives, bit for bit; any number of replicas, of which any may be killed."""

import math
import random

import pytest

from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.scoring import GroupScorer, score_whole_group
from restrain_openrlhf.scoring.wire import GroupReply, GroupRequest, GroupResponse, ScoreReply, ScoreRequest
from tests.scoring.service.clients import RESTRAIN

pytestmark = pytest.mark.timeout(300)

METHODS = {
    "restrain": {**RESTRAIN, "sigma": math.inf},
    "ttrl with votes": {"name": "ttrl", "votes": 12, "train_on": 6},
    "ettrl": {"name": "ettrl", "trees": 4, "forks": 2, "branches": 1},
}


def group(prompt: str, n: int = 12, entropies: bool = False, chance: random.Random | None = None) -> GroupRequest:
    """Twins, a missing answer and one that was cut off."""
    chance = chance or random.Random(prompt)
    texts = [
        "I give up",
        r"\boxed{12/2}",
        *(rf"so \boxed{{{chance.choice([6, 6, 7, '1/3'])}}}" for _ in range(n)),
    ]
    responses = tuple(GroupResponse(text=text, finished=number != 3) for number, text in enumerate(texts[:n]))
    nats = tuple(chance.uniform(0.01, 2) for _ in range(n)) if entropies else None
    return GroupRequest(prompt=prompt, responses=responses, entropies=nats)


def in_process(method: dict, groups: list[GroupRequest]) -> list[GroupReply]:
    scorer = GroupScorer(build(parse_settings(method)))
    return [GroupReply.of(score_whole_group(scorer, one)) for one in groups]


def body(groups: list[GroupRequest], method: dict) -> bytes:
    settings = parse_settings(method).model_dump(mode="json")
    return ScoreRequest(groups=groups, method=settings).model_dump_json().encode()


@pytest.mark.parametrize("name", ["restrain", "ettrl"])
def test_the_reply_is_what_scoring_in_process_gives_bit_for_bit(services, name):
    method, entropies = METHODS[name], name == "ettrl"
    service = services.start(method=method, gathers=False)
    groups = [group(f"p{number}", entropies=entropies) for number in range(20)]
    reply = service.http.post("/v1/score", content=body(groups, method))
    found = ScoreReply.model_validate_json(reply.raise_for_status().content).groups
    assert list(found) == in_process(method, groups)
    assert service.metric('restrain_groups_total{outcome="full"}') == len(groups)
    assert service.metric('restrain_answers_total{kind="truncated"}') == len(groups)
    assert service.metric("restrain_answers_total") == 12 * len(groups)


def test_another_method_than_the_services_is_refused_with_the_first_difference(standing):
    service = standing(method=RESTRAIN)
    asked = {**RESTRAIN, "kappa": 3, "sigma": 0.7}
    reply = service.http.post("/v1/score", content=body([group("p")], asked))
    assert reply.status_code == 409
    assert reply.json()["detail"] == "method.kappa is 3.0 in the request, but 2.0 in the service."
    reply = service.http.post("/v1/score", content=body([group("p")], {"name": "ttrl"}))
    assert reply.status_code == 409
    assert "method.k is None in the request" in reply.json()["detail"]


def test_a_group_that_cannot_be_scored_says_why(services):
    service = services.start(method=METHODS["ttrl with votes"], gathers=False)
    reply = service.http.post("/v1/score", content=body([group("p"), group("q", n=5)], METHODS["ttrl with votes"]))
    assert reply.status_code == 409
    assert "12" in reply.json()["detail"]
    assert service.metric('restrain_groups_total{outcome="failed"}') == 1
