"""`from restrain_openrlhf import score`: the numbers of training, a row for each rollout, and what wrong types get."""

import json
import warnings

import numpy as np
import pytest
import torch

from restrain_openrlhf import score
from restrain_openrlhf.errors import ConfigError, DataError, GroupError, RestrainError

# Shares 12/16 and 4/16 in the paper's golden row: w .731 and .269, A .267 and -.800 with the population's deviation.
TWELVE = [r"\boxed{7}"] * 12 + [r"so \boxed{3+5}"] * 4
PLAIN = {"name": "restrain", "prompt_weight": "none", "std": "population", "eps": 0}


def test_a_group_is_scored_in_one_line():
    (group,) = score(TWELVE, method=PLAIN)
    assert group.votes.counts == (12, 4)
    assert group.label_weights == pytest.approx([0.731, 0.269], abs=5e-4)
    assert group.pair.net[[0, -1]] == pytest.approx([0.267, -0.800], abs=5e-4)


def test_many_missing_answers_are_warned_of():
    with pytest.warns(UserWarning, match=r"60.0% of the responses have no answer.*'I give up'; 'no'"):
        score(["I give up", "no", "I give up", r"\boxed{1}", r"\boxed{2}"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        score(["I give up", *TWELVE])


def test_records_are_plain_rows_in_the_order_of_the_rollouts():
    rows = score([TWELVE, ["no", r"\boxed{1}", r"\boxed{2}"]], method=PLAIN).to_records()
    assert json.loads(json.dumps(rows)) == rows
    assert [(row["group"], row["rollout"]) for row in rows] == [(0, n) for n in range(16)] + [(1, n) for n in range(3)]
    assert [rows[15][name] for name in ("answer", "votes", "class", "is_majority")] == ["3+5", 4, 1, False]
    assert rows[0]["advantage"] == pytest.approx(rows[0]["advantage_pos"] + rows[0]["advantage_neg"])
    assert [rows[16][name] for name in ("answer", "votes", "label_weight", "penalized", "advantage")] == [
        None,
        0,
        0,
        True,
        -1,
    ]


def test_truncated_responses_options_and_gold():
    (group,) = score(TWELVE, truncated=[False] * 15 + [True])
    assert group.answers[-2:] == ("3+5", None)
    picked = score(
        [["A"] * 3, ["red"] * 3],
        ["p", "q"],
        answers="choice",
        method="ttrl",
        columns=[{"options": ["red", "blue"]}] * 2,
    )
    assert [group.answers[0] for group in picked] == ["red", "red"]
    assert score(TWELVE, "p", method="grpo_gold", gold="8")[0].rewards[-1] == 1


@pytest.mark.parametrize("array", [np.array, torch.tensor, lambda marks: [np.bool_(mark) for mark in marks]])
def test_arrays_and_tensors_are_taken_as_lists(array):
    marks = [False] * 15 + [True]
    assert score(TWELVE, truncated=array(marks))[0].answers[-2:] == ("3+5", None)
    assert score([TWELVE], truncated=[array(marks)])[0].answers[-2:] == ("3+5", None)
    assert score(np.array(TWELVE), np.array(["p"]))[0].votes.counts == (12, 4)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (("one text",), "responses is 'one text', of type str"),
        ((7,), "responses"),
        (({"a": "b"},), "responses"),
        (([],), "responses"),
        (([[]],), "responses"),
        ((["a", None],), "responses"),
        (([["a"], "b"],), "responses"),
        (([["a", 3]],), "responses"),
        ((["a"], ["p", "q"]), "prompts"),
        (([["a"], ["b"]], "p"), "prompts is 'p'"),
        ((["a"], 5), "prompts"),
    ],
)
def test_other_types_and_shapes_get_a_message(given, named):
    with pytest.raises(DataError, match=f"{named}.*Give"):
        score(*given)


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ({"method": 3}, ConfigError, "method: 3 is not a block of settings"),
        ({"method": {"name": "ttrl", "votez": 8}}, ConfigError, "'votez' is not a setting of ttrl"),
        ({"method": "restrain"}, RestrainError, "no reference was given"),
        ({"method": {"name": "ttrl", "votes": 64}}, GroupError, "votes on 64"),
        ({"answers": "maths"}, ConfigError, "Did you mean 'math'"),
        ({"reference": "/no/such/ref.jsonl"}, RestrainError, "/no/such/ref.jsonl"),
        ({"truncated": np.array(True)}, DataError, "of type ndarray. Give the true or false values of one prompt"),
        ({"truncated": np.array([1] * 16)}, DataError, "truncated is"),
        ({"truncated": [True]}, DataError, "truncated and responses have different shapes"),
        ({"truncated": True}, DataError, "truncated is True, of type bool"),
        ({"gold": ["7", "8"]}, DataError, "gold is"),
    ],
)
def test_other_words_get_a_message(words, error, message):
    with pytest.raises(error, match=message):
        score(TWELVE, **words)
