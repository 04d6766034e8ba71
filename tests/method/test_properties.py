"""Invariants under hypothesis, and equality with the paper's pseudo-code written out naively."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from restrain_openrlhf.errors import GroupError
from restrain_openrlhf.method import METHODS, History, PromptFacts, ReferenceVote, build, parse_settings
from restrain_openrlhf.method.types import PastVote
from tests.method import naive
from tests.method.test_baselines import numbered

# With which settings each method is tried on groups of eight; those that are not here, with their defaults.
ON_EIGHT = {
    "restrain": ({}, {"prompt_weight": "online"}, {"prompt_weight": 0.25, "kappa": 20}, {"kappa": 0}),
    "ettrl": tuple({"trees": 1, "forks": 1, "branches": 7, "ear": ear} for ear in ("residual", "none")),
    "gmae0": ({}, {"context": 3}),
    "rent": ({"rollouts": 8},),
    "scrl": ({}, {"votes": 8, "entropy_top_k": 20}),
}
# They believe the first of tied labels, and have no `ties: split`.
FIRST = {"ttrl_guard"}
PAST = (PastVote(0.5, False),) * 5
TRIED = [(name, block) for name in METHODS for block in ON_EIGHT.get(name, ({},))]


def facts_of(classes, gold=0, entropies=(0.5, 1, 2, 3, 1, 0.25, 0, 1)):
    """Everything that is known of a prompt: the labels are those of class 0 and of class `gold`, if there are such."""
    stored, right = (label if label in classes else None for label in (0, gold))
    return PromptFacts(ReferenceVote(7, 16), stored, right, tuple(entropies), history=History(PAST, stored))


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_tried_on_groups_of_eight(name):
    for block in ON_EIGHT.get(name, ({},)):
        classes = [0, 0, 0, 0, 1, 1, 2, None]
        try:
            build(parse_settings({"name": name, **block})).score(classes, facts_of(classes))
        except GroupError as error:
            pytest.fail(f"Add settings of {name!r} to ON_EIGHT with which it scores a group of eight: {error}")


@st.composite
def groups(draw, min_size=2, max_size=24):
    """Classes numbered in order of first appearance, some missing."""
    raw = draw(st.lists(st.one_of(st.none(), st.integers(0, 6)), min_size=min_size, max_size=max_size))
    return numbered(raw)


settings = st.fixed_dictionaries(
    {
        "sigma": st.floats(0.05, 10),
        "k": st.floats(0, 1),
        "kappa": st.integers(0, 8),
        "delta": st.floats(0, 5),
        "prompt_weight": st.floats(0, 1),
    }
)
ratios = st.floats(-6, 6).map(np.exp)


@given(groups(), settings, st.data())
def test_closed_form_equals_the_papers_pseudo_code_on_the_clipped_loss(classes, values, data):
    ratio = np.array(data.draw(st.lists(ratios, min_size=len(classes), max_size=len(classes))))
    dual = data.draw(st.sampled_from([None, 3.0]))
    pair = build(parse_settings({"name": "restrain", **values})).score(classes).pair
    ours = naive.clipped_loss(ratio, pair.positive, dual=dual) + naive.clipped_loss(ratio, pair.negative, dual=dual)
    assert ours == pytest.approx(naive.restrain_loss(classes, ratio, dual=dual, **values), rel=1e-9, abs=1e-9)


@given(groups(), st.sampled_from(["unbiased", "population"]))
def test_both_standard_deviations_equal_the_naive_loop(classes, std):
    block = {"name": "restrain", "std": std, "kappa": 0, "prompt_weight": "none"}
    score = build(parse_settings(block)).score(classes)
    per_label = naive.advantages_by_label(classes, ddof=1 if std == "unbiased" else 0)
    weights = naive.soft_weights([classes.count(j) for j in range(per_label.shape[1])], len(classes), 0.5, 1.0)
    assert score.label_weights == pytest.approx(weights)
    assert score.pair.positive == pytest.approx(np.maximum(per_label, 0) @ weights, abs=1e-9)
    assert score.pair.negative == pytest.approx(np.minimum(per_label, 0) @ weights, abs=1e-9)


@pytest.mark.parametrize(("name", "block"), TRIED)
@given(data=st.data())
def test_a_missing_answer_is_penalised_alike_by_every_method_and_no_other_rollout_is(name, block, data):
    """Whatever a method does to the pair: u_x, penalties of a group, clipping and factors of either sign."""
    delta, classes = data.draw(st.floats(0, 20)), data.draw(groups(8, 8))
    entropies = data.draw(st.lists(st.floats(0, 5), min_size=8, max_size=8))
    facts, whole = facts_of(classes, entropies=entropies), {"name": name, **block}
    penalised = build(parse_settings({**whole, "delta": delta, "missing": "penalize"})).score(classes, facts)
    others = {"delta": delta} if name == "restrain" else {}
    plain = build(parse_settings({**whole, **others})).score(classes, facts)
    for i, label in enumerate(classes):
        expected = (0.0, -delta) if label is None else (plain.pair.positive[i], plain.pair.negative[i])
        assert (penalised.pair.positive[i], penalised.pair.negative[i]) == expected
    assert (penalised.prompt_weight, penalised.kl_weight) == (plain.prompt_weight, plain.kl_weight)
    assert penalised.penalized == plain.penalized


@given(groups())
def test_sigma_to_zero_is_the_shared_majority_and_sigma_to_infinity_is_uniform(classes):
    def weights(**block):
        return (
            build(parse_settings({"name": "restrain", "prompt_weight": "none", **block})).score(classes).label_weights
        )

    majority, uniform = weights(label_weights="majority", ties="split"), weights(label_weights="uniform")
    assert weights(sigma=0).tolist() == majority.tolist()
    assert weights(sigma=1e-3) == pytest.approx(majority, abs=1e-12)
    assert weights(sigma=float("inf")).tolist() == pytest.approx(uniform)
    assert weights(sigma=1e9) == pytest.approx(uniform, abs=1e-12)


@pytest.mark.parametrize(("name", "block"), TRIED)
@given(classes=groups(8, 8), order=st.permutations(range(8)))
def test_the_order_of_rollouts_does_not_matter(name, block, classes, order):
    """But for which tied label comes first, which `ties: split` takes out of the question."""
    counts = sorted(classes.count(label) for label in {*classes} - {None})
    assume(name not in FIRST or counts[-2:-1] != counts[-1:])
    split = {"ties": "split"} if "ties" in METHODS[name].model_fields else {}
    method, facts = build(parse_settings({"name": name, **block, **split})), facts_of(classes)
    shuffled = numbered([classes[i] for i in order])
    first = next((shuffled[place] for place, i in enumerate(order) if classes[i] == 0), None)
    entropies = tuple(facts.entropies[i] for i in order)
    moved = method.score(shuffled, PromptFacts(facts.reference, first, first, entropies, history=History(PAST, first)))
    still = method.score(classes, facts)
    assert moved.pair.net == pytest.approx(still.pair.net[list(order)], abs=1e-12)


@given(groups(), settings)
def test_renaming_answers_does_not_matter(classes, values):
    method = build(parse_settings({"name": "restrain", **values}))
    m = len({label for label in classes if label is not None})
    renamed = [None if label is None else m - 1 - label for label in classes]
    assert method.score(renamed).pair.net == pytest.approx(method.score(classes).pair.net, abs=1e-12)


@pytest.mark.parametrize(("name", "block"), [each for each in TRIED if each[0] != "grpo_gold"])
@given(classes=groups(8, 8), golds=st.tuples(*[st.none() | st.integers(0, 6)] * 2))
def test_gold_never_changes_a_label_free_advantage(name, block, classes, golds):
    method = build(parse_settings({"name": name, **block}))
    assert not method.reads_gold
    one, other = (method.score(classes, facts_of(classes, gold)) for gold in golds)
    for found, same in ((one.pair.positive, other.pair.positive), (one.pair.negative, other.pair.negative)):
        assert found.tobytes() == same.tobytes()
    assert (one.prompt_weight, one.kl_weight, one.penalized) == (other.prompt_weight, other.kl_weight, other.penalized)
