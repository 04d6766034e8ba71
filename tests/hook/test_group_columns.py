"""A group's columns: written as the host's extra_logs, read off its Experience, and checked by identity."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from restrain_openrlhf.errors import GroupError, HookNotActiveError  # noqa: E402
from restrain_openrlhf.hook.group_columns import (  # noqa: E402
    GENERATED,
    MAJORITY,
    TRAINED_ON,
    columns,
    majority_digest,
    take_votes,
)
from restrain_openrlhf.method import build, parse_settings  # noqa: E402
from restrain_openrlhf.reward.whole_group import score_whole_group  # noqa: E402
from restrain_openrlhf.reward.wire import GroupRequest  # noqa: E402
from restrain_openrlhf.scoring import GroupScorer  # noqa: E402


def rollouts(prompt, *answers):
    """A group as the trainer gets it; an answer of None was cut off."""
    scorer = GroupScorer(build(parse_settings({"name": "restrain", "kappa": 2, "prompt_weight": 0.5})))
    texts = [{"text": rf"\boxed{{{answer}}}", "finished": answer is not None} for answer in answers]
    request = GroupRequest(prompt=prompt, responses=texts)
    reply = score_whole_group(scorer, request)
    extra = {MAJORITY: majority_digest(reply.majority_key), GENERATED: 50, "restrain/place": 7}
    rows = [{**row, **extra} for row in columns(request, reply)]
    return [
        SimpleNamespace(prompts=[prompt], info={name: torch.tensor([value]) for name, value in row.items()})
        for row in rows
    ]


def test_votes_are_taken_off_the_rollouts_and_what_is_trained_on_stays():
    samples = rollouts("1+1=", "2", "2", "3", None) + rollouts("2+2=", "4", "5", "6", "7")
    first, second = take_votes(samples, 4)
    assert (first.prompt, first.voters, first.majority_count, first.missing, first.truncated) == ("1+1=", 4, 2, 1, 1)
    assert (first.penalized, second.penalized) == (0, 1)
    assert (second.prompt, second.majority_count, second.missing) == ("2+2=", 1, 0)
    assert (first.prompt_weight, first.generated_tokens) == (0.5, 50)
    assert first.positive.shape == (4,)
    assert {frozenset(sample.info) for sample in samples} == {frozenset(TRAINED_ON)}


def test_majorities_are_equal_where_answers_are():
    same = [take_votes(rollouts("x", *answers), 2)[0].majority for answers in (("0.5", "1/2"), (r"\frac12", "3"))]
    other, none = take_votes(rollouts("x", "7", "7"), 2)[0].majority, take_votes(rollouts("x", None, None), 2)[0]
    assert same[0] == same[1] != other
    assert none.majority is None
    assert all(0 < majority < 2**63 for majority in (*same, other))


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (rollouts("a", "1", "1", "1"), "3 rollouts arrived, which is no multiple"),
        (rollouts("a", "1") + rollouts("b", "1"), "2 neighbouring rollouts belong to 2 prompts"),
        ([], "0 rollouts arrived"),
    ],
)
def test_what_is_no_group_is_refused(samples, message):
    with pytest.raises(GroupError, match=message):
        take_votes(samples, 2)


@pytest.mark.parametrize("name", [*TRAINED_ON, MAJORITY, GENERATED, "restrain/voters"])
def test_a_rollout_without_its_columns_stops_the_run(name):
    samples = rollouts("a", "1", "2")
    del samples[1].info[name]
    with pytest.raises(HookNotActiveError, match="1 of a prompt's 2 rollouts carry no advantages"):
        take_votes(samples, 2)
