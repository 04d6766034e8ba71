"""Pseudo-labels against gold: a small run counted by hand, and what holds of any."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.answers import classes
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.evaluation.labels import PromptGold, label_quality, majority_right
from restrain_openrlhf.hook.run_log import kept_group
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.records.kept import KeptGroup, KeptRollout
from restrain_openrlhf.scoring import GroupScorer
from restrain_openrlhf.scoring.wire import GroupRequest


def group(step, prompt, answers, net, penalized=False, trained=4):
    """A kept group; `net` has the net advantages of its trained rollouts."""
    labels = classes(answers)
    votes = Counter(label for label in labels if label is not None)
    return KeptGroup(
        step=step,
        group=0,
        prompt_id=text_hash(prompt),
        prompt=prompt,
        majority_count=max(votes.values(), default=0),
        voters=len(answers),
        prompt_weight=0.5,
        penalized=penalized,
        rollouts=tuple(
            KeptRollout(
                rollout=place,
                response=f"so {answer}",
                finished=True,
                answer=answer,
                label=label,
                class_votes=votes.get(label),
                label_weight=None,
                trained=place < trained,
                advantage_pos=max(net[place], 0.0) if place < trained else None,
                advantage_neg=min(net[place], 0.0) if place < trained else None,
            )
            for place, (answer, label) in enumerate(zip(answers, labels, strict=True))
        ),
    )


RUN = (
    group(1, "1+1=", ["2", "2", "3", None], net=[0.5, 0.5, -0.4, -0.6]),
    # The right rollout is pushed down, the wrong ones up.
    group(1, "2+2=", ["5", "5", "5", "4"], net=[0.2, 0.2, 0.2, -0.6]),
    # A tie goes to the first, which is wrong; the penalty pushes the right one down too.
    group(2, "1+1=", ["1", "2", "3", "4"], net=[-1.0] * 4, penalized=True),
    # Unanimous: no signal, but for a rounding error.
    group(2, "3+3=", ["6.0", "6", "6", r"\frac{12}{2}"], net=[1e-17, 0, 0, 0]),
    group(2, "9+9=", ["18"] * 4, net=[0] * 4),
    group(2, "5+5=", [None] * 4, net=[-1.0] * 4, penalized=True),
)
RUN = tuple(replace(each, group=place) for place, each in enumerate(RUN))
GOLD = {text_hash(prompt): answer for prompt, answer in {"1+1=": "2", "2+2=": "4", "3+3=": "6", "5+5=": "10"}.items()}


def quality(groups=RUN, gold=GOLD):
    return label_quality(groups, PromptGold(gold))


def test_a_run_counted_by_hand():
    found = quality()
    assert (found.prompts, found.prompts_without_gold, found.groups_without_gold) == (5, 1, 1)
    total = found.total
    assert total.groups == 5
    assert total.label_accuracy == 2 / 5
    assert total.some_right == 4 / 5
    assert total.rollout_accuracy == (2 + 1 + 1 + 4 + 0) / 20
    assert total.signals == 16
    assert total.reward_accuracy == (4 + 0 + 3 + 4) / 16
    assert 0 < total.label_low < 2 / 5 < total.label_high < 1


def test_a_group_that_pushes_nothing_has_no_signal():
    unanimous = quality([RUN[3]])
    assert (unanimous.total.signals, unanimous.total.reward_accuracy) == (0, None)


def test_who_only_votes_counts_for_the_majority_and_not_for_the_signal():
    voted = group(1, "1+1=", ["2", "3", "3", "2", "2", "2"], net=[0.5, -0.5], trained=2)
    total = quality([voted]).total
    assert (total.label_accuracy, total.signals, total.reward_accuracy) == (1, 2, 1)
    assert total.rollout_accuracy == 4 / 6


ANSWERS = st.lists(st.sampled_from(["1", "2", "3", "2.0", None]), min_size=4, max_size=4)


def scored(step, answers, method):
    """A group as the method scores it."""
    score = GroupScorer(build(parse_settings(method))).score("x", answers)
    texts = [{"text": "", "finished": True} for _ in answers]
    return kept_group(step, 0, GroupRequest(prompt="x", responses=texts), score)


@given(st.lists(st.tuples(st.integers(1, 3), ANSWERS), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_parts_add_up_whatever_the_order(drawn, chance):
    method = {"name": "restrain", "kappa": 2, "prompt_weight": "online"}
    groups = [scored(step, answers, method) for step, answers in drawn]
    gold = {text_hash("x"): "2"}
    found = quality(groups, gold)
    alone = [quality([each], gold).total for each in groups]
    assert sum(each.groups for each in alone) == found.total.groups == len(groups)
    right = sum(each.label_accuracy for each in alone)
    assert right == pytest.approx(found.total.groups * found.total.label_accuracy)
    assert sum(each.signals for each in alone) == found.total.signals
    chance.shuffle(groups)
    again = quality(groups, gold)
    assert again.total.model_dump() == pytest.approx(found.total.model_dump())


@given(st.lists(ANSWERS.filter(any), min_size=1, max_size=5))
def test_where_the_majority_is_gold_a_majority_label_is_never_wrong(drawn):
    """TTRL pushes exactly the majority's rollouts up."""
    for answers in drawn:
        kept = scored(1, answers, {"name": "ttrl"})
        votes = Counter(rollout.label for rollout in kept.rollouts if rollout.label is not None)
        label = min(votes, key=lambda each: (-votes[each], each))
        gold = next(rollout.answer for rollout in kept.rollouts if rollout.label == label)
        total = quality([kept], {text_hash("x"): gold}).total
        assert total.label_accuracy == 1
        assert total.reward_accuracy in (1, None)


def test_a_class_is_right_to_the_share_of_its_rollouts_that_is():
    """As an embedding or a judge may have it."""
    voted = group(1, "x", ["0", "0", "0", "1", None], net=[0] * 4)
    assert majority_right(voted, [False, True, True, True, False]) == 2 / 3
