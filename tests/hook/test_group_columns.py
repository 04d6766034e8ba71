"""A group's columns: written as the host's extra_logs, read off its Experience, and checked by identity."""

from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="needs the training stack: make install")

import torch

from restrain_openrlhf.answers import MATHEMATICS, parse_kind
from restrain_openrlhf.errors import GroupError, HookNotActiveError
from restrain_openrlhf.hook.rollout.group_columns import (
    TRAINED_ON,
    ScoredGroup,
    columns,
    labels,
    take_scored,
    take_votes,
)
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.scoring import GroupScorer, score_whole_group
from restrain_openrlhf.scoring.wire import GroupRequest


def rollouts(prompt, *answers, kind=MATHEMATICS):
    """A group as the trainer gets it; an answer of None was cut off."""
    settings = parse_settings({"name": "restrain", "kappa": 2, "prompt_weight": 0.5})
    scorer = GroupScorer(build(settings), None, kind)
    texts = [{"text": rf"\boxed{{{answer}}}", "finished": answer is not None} for answer in answers]
    request = GroupRequest(prompt=prompt, responses=texts)
    reply = score_whole_group(scorer, request)
    rows = [{**row, "restrain/place": 7} for row in columns(request, reply)]
    carried = labels(ScoredGroup(request, reply, 50), len(rows), carry=True)
    return [
        SimpleNamespace(
            prompts=[prompt], labels=[label], info={name: torch.tensor([value]) for name, value in row.items()}
        )
        for row, label in zip(rows, carried, strict=True)
    ]


def test_votes_are_taken_off_the_rollouts_and_what_is_trained_on_stays():
    samples = rollouts("1+1=", "2", "2", "3", None) + rollouts("2+2=", "4", "5", "6", "7")
    again = rollouts("2+2=", "4", "5", "6", "7") + rollouts("1+1=", "1", "1", "1", "1")
    step = take_votes(samples, 4)
    assert (step.prompts, step.voters, step.majority_histogram) == (2, 8, (0, 1, 1, 0, 0))
    assert (step.missing_share_of_voters, step.truncated_share_of_voters) == (1 / 8, 1 / 8)
    assert (step.low_consensus_share, step.prompt_weight_mean, step.generated_tokens) == (0.5, 0.5, 100)
    assert step.prompts_digest == take_votes(again, 4).prompts_digest
    assert step.advantage_neg_norm == pytest.approx(torch.cat([each.info[TRAINED_ON[1]] for each in samples]).norm())
    assert {frozenset(sample.info) for sample in samples} == {frozenset(TRAINED_ON)}


def test_majorities_are_equal_where_answers_are():
    def share(*groups, kind=MATHEMATICS):
        samples = [each for place, group in enumerate(groups) for each in rollouts(str(place), *group, kind=kind)]
        found = take_votes(samples, 2, kind).top_answer_share
        assert len(take_scored(samples, 2)) == len(groups)
        assert {label for sample in samples for label in sample.labels} == {""}, "labels are plain again"
        return found

    assert share(("0.5", "1/2"), (r"\frac12", "3")) == 1
    assert share(("0.5", "1/2"), ("7", "7")) == 0.5
    assert share(("7", "7"), (None, None), (None, None), (None, None)) == 0.25
    about_100 = [(value, "3") for value in ("100", "100.001", "100.002", "100.003", "100.004")]
    assert share(*about_100, kind=parse_kind({"name": "number"})) == 1, "numbers within the tolerance are one answer"


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (rollouts("a", "1", "1", "1"), "3 rollouts arrived, which is not a multiple"),
        (
            rollouts("a", "1") + rollouts("b", "1"),
            "2 neighbouring rollouts, which should be one group, belong to 2 prompts",
        ),
        (rollouts("a", "1") + rollouts("a", "1"), "2 neighbouring rollouts were scored as a group of 1"),
        ([], "0 rollouts arrived"),
    ],
)
def test_what_is_no_group_is_refused(samples, message):
    with pytest.raises(GroupError, match=message):
        take_votes(samples, 2)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("name", TRAINED_ON)
def test_a_rollout_without_its_columns_stops_the_run(place, name):
    samples = rollouts("a", "1", "2")
    del samples[place].info[name]
    with pytest.raises(HookNotActiveError, match="1 of a prompt's 2 rollouts carry no advantages"):
        take_votes(samples, 2)


def test_a_group_without_its_vote_stops_the_run():
    samples = rollouts("a", "1", "2")
    samples[0].labels = [""]
    with pytest.raises(HookNotActiveError, match="2 of a prompt's 2 rollouts carry no advantages"):
        take_votes(samples, 2)
