"""Where methods learn: shares and pushes of made-up passes, worked by hand."""

import pytest

from restrain_openrlhf.commands.premise.diagnosis import diagnose, quarters
from restrain_openrlhf.commands.premise.frozen import from_reference
from restrain_openrlhf.method import METHODS, parse_settings
from tests.commands.premise.passes import counted, frozen, write_pass


def learned(pass_, name="ttrl", **settings):
    return diagnose(pass_, parse_settings({"name": name, "std": "population", "eps": 0.0, **settings})).chosen


def measured(folder, groups, gold=None, **block):
    return learned(frozen(folder, groups, gold), **block)


@pytest.mark.parametrize(
    ("n", "bins"),
    [
        (16, ((0, 4), (5, 8), (9, 12), (13, 16))),
        (8, ((0, 2), (3, 4), (5, 6), (7, 8))),
        (6, ((0, 2), (3, 3), (4, 5), (6, 6))),
        (2, ((0, 1), (2, 2))),
        (1, ((0, 1),)),
    ],
)
def test_majority_sizes_in_quarters(n, bins):
    assert quarters(n) == bins


def test_squared_advantage_by_majority_size(tmp_path):
    """TTRL normalises: unless it is unanimous, a group's A² sum to n. Two groups have M = 2, one 3, one 4 of 4."""
    groups = [["a", "a", "b", "c"], ["d", "d", "e", "f"], ["g", "g", "g", "h"], ["i"] * 4]
    found = measured(tmp_path, groups)
    assert found.by_size == pytest.approx((0, 2 / 3, 1 / 3, 0))
    # M = 2: |A| = 1 for all; M = 3: 3 × .5774 and 1.7321; M = 4: 0.
    assert found.mean_advantage == pytest.approx((4 + 4 + 3 * 3**-0.5 + 3**0.5) / 16)
    assert (found.prompts, found.penalized) == (4, 0)


def test_the_penalty_has_its_share(tmp_path):
    """kappa = 2 of 4: a group of four distinct answers has A = -1 for all; in the other A² sum to 4, as with TTRL."""
    block = {"name": "restrain", "label_weights": "majority", "kappa": 2, "prompt_weight": "none"}
    found = measured(tmp_path, [["a", "b", "c", "d"], ["e", "e", "f", "g"]], **block)
    assert (found.prompts_penalized, found.penalized) == (0.5, pytest.approx(0.5))
    assert found.by_size == pytest.approx((0.5, 0.5, 0, 0))


def test_pushes_on_the_shared_and_on_right_answers(tmp_path):
    """Two groups of M = 2 of 4, |A| = 1. '?' is the majority of the first (+2), and one other of the second (-1).

    Right are the majority of the second (+2) and one of the others of the first (-1); the sum of |A| is 8.
    """
    groups = [["?", "?", "a", "b"], ["c", "c", "?", "d"]]
    found = measured(tmp_path, groups, gold=["a", "c"])
    assert found.shared_push == pytest.approx(1 / 8)
    assert found.right_push == pytest.approx(1 / 8)
    assert found.on_wrong == pytest.approx(0.5)
    gold = measured(tmp_path, groups, gold=["a", "c"], name="grpo_gold")
    assert gold.right_push == pytest.approx(0.5)
    assert gold.reads_gold


def test_gold_of_some_prompts_speaks_of_those_alone(tmp_path):
    """Each A² sums to 4. Wrong are two of three prompts with gold: 8 of 12."""
    groups = [["a", "a", "b", "c"], ["d", "d", "e", "f"], ["g", "g", "h", "i"], ["j", "j", "k", "l"]]
    gold = ["a", "e", None, "k"]
    assert measured(tmp_path, groups, gold=gold).on_wrong == pytest.approx(2 / 3)
    assert measured(tmp_path, groups, gold=gold, name="grpo_gold").prompts == 3


def test_srt_easy_learns_on_its_prompts_alone(tmp_path):
    groups = [["a", "a", "b", "c"], ["d", "d", "d", "e"], ["f", "f", "g", "h"]]
    found = measured(tmp_path, groups, name="srt_easy")
    assert (found.prompts, found.by_size) == (1, (0, 0, 1, 0))


def test_every_registered_method_is_tried_or_says_why_not(tmp_path):
    found = diagnose(frozen(tmp_path, [["a", "a", "b", None]] * 6), parse_settings({"name": "restrain"}))
    reasons, tried = found.left_out, {one.name for one in found.methods}
    assert found.methods[0].name == "restrain"
    assert tried | reasons.keys() == set(METHODS)
    assert not tried & reasons.keys()
    assert reasons.keys() == {"ettrl", "grpo_gold", "rent"}, "of a method that is left out, check its reason here"
    assert "votes on 16" in reasons["rent"]
    assert "votes on 60" in reasons["ettrl"]
    assert "gold" in reasons["grpo_gold"]


def test_a_prompts_group_may_be_smaller_than_its_frozen_vote(tmp_path):
    """The first 4 of 8: no majority is left of the frozen 5, and u_x is still that of 5 of 8."""
    path = write_pass(tmp_path / "ref.jsonl", [["a", "b", "c", "d", "a", "a", "a", "a"]])
    found = learned(from_reference(path, group_size=4), "restrain", kappa=2)
    assert found.prompts_penalized == 1
    assert found.mean_advantage == pytest.approx(2.718281828 ** (-((5 / 8 - 1) ** 2) / 0.5))
    assert found.by_size == (0, 0, 1, 0)


def test_missing_answers_and_sizes_are_counted(tmp_path):
    groups = [counted({"a": 2, None: 2}), counted({"a": 1, None: 3}), counted({"a": 4}), counted({None: 4})]
    found = diagnose(frozen(tmp_path, groups), parse_settings({"name": "restrain", "kappa": 2}))
    assert found.sizes == (1, 1, 1, 0, 1)
    assert found.missing_share == 9 / 16
    assert found.chosen.prompts_penalized == 0.5


def test_reliability_by_size(tmp_path):
    groups = [["a", "a", "a", "a"], ["b", "b", "b", "c"], ["d", "d", "d", "e"], ["f", "f", "g", "h"]]
    found = diagnose(frozen(tmp_path, groups, ["a", "b", "e", "g"]), parse_settings({"name": "ttrl"})).gold
    assert found.pass_at_1 == (4 + 3 + 1 + 1) / 16
    assert [(row.size, row.problems, row.majority_accuracy) for row in found.by_size] == [
        (2, 1, 0.0),
        (3, 2, 0.5),
        (4, 1, 1.0),
    ]
    assert found.majority_right == 0.5
