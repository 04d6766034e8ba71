"""With `gold: where_given` a prompt that has a gold answer is trained on it alone, and every other one on its votes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import METHODS, PromptFacts, ReferenceVote, build, parse_settings
from tests.method.test_baselines import GROUPS, grpo, rewards_for

TAKING = [name for name, settings in METHODS.items() if "gold" in settings.model_fields]
REFERENCE = ReferenceVote(1, 4)


def with_gold(name, **more):
    return build(parse_settings({"name": name, "gold": "where_given", **more}))


def test_these_methods_take_gold():
    assert {"restrain", "ttrl", "srt_offline"} <= set(TAKING)
    assert "grpo_gold" not in TAKING


@pytest.mark.parametrize("name", TAKING)
@given(labels=GROUPS, data=st.data())
def test_a_prompt_with_gold_is_grpo_on_gold_without_weight_or_penalty(name, labels, data):
    gold = data.draw(st.sampled_from([*{label for label in labels if label is not None}, None]))
    facts = PromptFacts(REFERENCE, stored_class=0, gold_class=gold, has_gold=True)
    score = with_gold(name).score(labels, facts)
    assert score.pair.net == pytest.approx(grpo(rewards_for(gold, labels)))
    assert (score.penalized, score.prompt_weight, score.kl_weight) == (0, 1.0, 1.0)


@pytest.mark.parametrize("name", TAKING)
@given(labels=GROUPS)
def test_a_prompt_without_gold_is_scored_as_if_there_were_no_such_setting(name, labels):
    facts = PromptFacts(REFERENCE, stored_class=0 if 0 in labels else None)
    methods = with_gold(name), build(parse_settings({"name": name}))
    taking, plain = (each.score(labels, facts).pair for each in methods)
    assert taking.positive.tobytes() == plain.positive.tobytes()
    assert taking.negative.tobytes() == plain.negative.tobytes()


@pytest.mark.parametrize("name", TAKING)
@given(labels=GROUPS)
def test_without_the_setting_gold_changes_nothing(name, labels):
    plain = build(parse_settings({"name": name}))
    assert not plain.reads_gold
    first = 0 if 0 in labels else None
    known, unknown = PromptFacts(REFERENCE, first, first, None, True), PromptFacts(REFERENCE, first)
    assert plain.score(labels, known).pair.net.tobytes() == plain.score(labels, unknown).pair.net.tobytes()


def test_a_missing_answer_is_penalised_beside_gold_too():
    score = with_gold("ttrl", missing="penalize").score([0, None, 1], PromptFacts(gold_class=1, has_gold=True))
    assert (score.pair.positive[1], score.pair.negative[1]) == (0.0, -1.0)


def test_it_does_not_need_gold_and_reads_it():
    method = with_gold("restrain", labelled_share=0.25)
    assert (method.reads_gold, method.needs_gold, method.labelled_share) == (True, False, 0.25)
    with pytest.raises(ConfigError, match="labelled_share has an effect only with gold: where_given"):
        parse_settings({"name": "restrain", "labelled_share": 0.25})
