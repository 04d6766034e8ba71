"""Invariants under hypothesis, and equality with the paper's pseudo-code written out naively."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.method import METHODS, PromptFacts, ReferenceVote, build, parse_settings
from tests.method import naive

LABEL_FREE = ("restrain", "ttrl", "srt_offline")
FACTS = PromptFacts(reference=ReferenceVote(7, 16), stored_class=0)


@st.composite
def groups(draw, min_size=2, max_size=24):
    """Classes numbered in order of first appearance, some missing."""
    raw = draw(st.lists(st.one_of(st.none(), st.integers(0, 6)), min_size=min_size, max_size=max_size))
    return renumber(raw)


def renumber(raw):
    numbers = {}
    return [None if label is None else numbers.setdefault(label, len(numbers)) for label in raw]


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


# What a registered method needs besides its name, and choices of its own that change the pair after the votes.
VARIANTS = {
    "restrain": ({}, {"prompt_weight": "online"}, {"prompt_weight": 0.25, "kappa": 20}, {"kappa": 0}),
    "ettrl": tuple({"trees": 1, "forks": 1, "branches": 7, "ear": ear} for ear in ("residual", "none")),
}


@pytest.mark.parametrize("name", METHODS)
@given(data=st.data())
def test_a_missing_answer_is_penalised_alike_by_every_method_and_no_other_rollout_is(name, data):
    """Whatever a method does to the pair: u_x, penalties of a group, clipping and factors of either sign."""
    block = {"name": name, **data.draw(st.sampled_from(VARIANTS.get(name, ({},))))}
    delta, classes = data.draw(st.floats(0, 20)), data.draw(groups(8, 8))
    facts = PromptFacts(
        reference=ReferenceVote(data.draw(st.integers(1, 16)), 16),
        stored_class=0 if 0 in classes else None,
        gold_class=0 if 0 in classes else None,
        entropies=tuple(data.draw(st.lists(st.floats(0, 5), min_size=8, max_size=8))),
    )
    penalised = build(parse_settings({**block, "delta": delta, "missing": "penalize"})).score(classes, facts)
    others = {"delta": delta} if name == "restrain" else {}
    plain = build(parse_settings({**block, **others})).score(classes, facts)
    for i, label in enumerate(classes):
        expected = (0.0, -delta) if label is None else (plain.pair.positive[i], plain.pair.negative[i])
        assert (penalised.pair.positive[i], penalised.pair.negative[i]) == expected
    assert (penalised.prompt_weight, penalised.kl_weight) == (plain.prompt_weight, plain.kl_weight)


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


@pytest.mark.parametrize("name", LABEL_FREE)
@given(classes=groups(), data=st.data())
def test_the_order_of_rollouts_does_not_matter(name, classes, data):
    """But for which tied label comes first, which `ties: split` takes out of the question."""
    extra = {"ttrl": {"ties": "split"}}.get(name, {})
    method = build(parse_settings({"name": name, **extra}))
    order = data.draw(st.permutations(range(len(classes))))
    shuffled = [classes[i] for i in order]
    moved = method.score(renumber(shuffled), facts_after(classes, renumber(shuffled), order))
    still = method.score(classes, FACTS if 0 in classes else PromptFacts(reference=FACTS.reference))
    assert moved.pair.net == pytest.approx(still.pair.net[list(order)], abs=1e-12)


def facts_after(classes, renamed, order):
    stored = next((renamed[place] for place, i in enumerate(order) if classes[i] == 0), None)
    return PromptFacts(reference=FACTS.reference, stored_class=stored)


@given(groups(), settings)
def test_renaming_answers_does_not_matter(classes, values):
    method = build(parse_settings({"name": "restrain", **values}))
    m = len({label for label in classes if label is not None})
    renamed = [None if label is None else m - 1 - label for label in classes]
    assert method.score(renamed).pair.net == pytest.approx(method.score(classes).pair.net, abs=1e-12)


@pytest.mark.parametrize("name", LABEL_FREE)
@given(classes=groups(), first=st.none() | st.integers(0, 6), second=st.none() | st.integers(0, 6))
def test_gold_never_changes_a_label_free_advantage(name, classes, first, second):
    method = build(parse_settings({"name": name}))
    assert not method.reads_gold
    scores = [
        method.score(
            classes, PromptFacts(FACTS.reference, stored_class=0 if 0 in classes else None, gold_class=gold)
        ).pair
        for gold in (first, second)
    ]
    assert scores[0].positive.tobytes() == scores[1].positive.tobytes()
    assert scores[0].negative.tobytes() == scores[1].negative.tobytes()
