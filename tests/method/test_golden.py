"""Values worked by hand (docs/concepts/method.md): n = 16, sigma = .5, k = 1, population standard deviation, no u_x."""

import math

import pytest

from restrain_openrlhf.errors import ReferencePassError
from restrain_openrlhf.method import PromptFacts, ReferenceVote, build, parse_settings

N = 16


def group(*counts):
    labels = [label for label, count in enumerate(counts) for _ in range(count)]
    return labels + [None] * (N - len(labels))


def restrain(**settings):
    block = {"name": "restrain", "std": "population", "eps": 0.0, "prompt_weight": 1.0, **settings}
    return build(parse_settings(block))


@pytest.mark.parametrize(
    ("counts", "weights", "net"),
    [
        ((16,), (1, 1), (0, 0)),
        ((12, 4), (0.731, 0.269), (0.267, -0.800)),
        ((10, 1, 1, 1, 1, 1, 1), (0.422, 0.096), (0.177, -0.296)),
        ((8, 8), (0.5, 0.5), (0, 0)),
        ((3, *[1] * 13), (0.106, 0.069), (-0.009, 0.002)),
    ],
)
def test_label_weights_and_net_advantages_of_the_golden_table(counts, weights, net):
    score = restrain().score(group(*counts))
    assert score.label_weights[[0, -1]] == pytest.approx(weights, abs=6e-4)
    assert score.pair.net[[0, -1]] == pytest.approx(net, abs=6e-4)
    assert not score.penalized


def test_missing_answers_stay_in_n_but_are_no_label():
    score = restrain().score(group(10))
    assert score.label_weights.tolist() == [1.0]
    assert score.pair.net[[0, -1]] == pytest.approx((0.775, -1.291), abs=6e-4)
    assert score.rewards.tolist() == [1.0] * 10 + [0.0] * 6


@pytest.mark.parametrize(("majority", "weight"), [(3, 0.267), (8, 0.607), (16, 1.0)])
def test_prompt_weight_of_the_frozen_model(majority, weight):
    method = build(parse_settings({"name": "restrain"}))
    score = method.score(group(12, 4), PromptFacts(reference=ReferenceVote(majority, N)))
    assert score.prompt_weight == pytest.approx(weight, abs=6e-4)
    assert score.kl_weight == score.prompt_weight
    plain = build(parse_settings({"name": "restrain", "prompt_weight": "none"})).score(group(12, 4))
    assert score.pair.net == pytest.approx(score.prompt_weight * plain.pair.net)


def test_low_consensus_gives_every_rollout_minus_delta_times_the_prompt_weight():
    score = restrain(prompt_weight=0.5, delta=3.0).score(group(2, *[1] * 14))
    assert score.penalized == 1
    assert score.pair.negative.tolist() == [-1.5] * N
    assert score.pair.positive.tolist() == [0.0] * N
    assert score.rewards.tolist() == [0.0] * N


@pytest.mark.parametrize("count", range(1, 100))
def test_a_group_that_stands_exactly_at_a_share_is_not_penalised(count):
    """Also where κ · n rounds above the count, as .07 · 100 does."""
    classes = [0] * count + [None] * (100 - count)
    at, above = (restrain(kappa=share) for share in (count / 100, (count + 0.5) / 100))
    assert not at.score(classes).penalized
    assert above.score(classes).penalized == (count + 0.5 < 100)


@pytest.mark.parametrize(("kappa", "penalized"), [(0, False), (2, False), (3, True), (0.125, False), (0.13, True)])
def test_kappa_is_a_count_or_a_share_and_zero_switches_the_penalty_off(kappa, penalized):
    assert restrain(kappa=kappa).score(group(2, *[1] * 14)).penalized == penalized


def test_online_prompt_weight_follows_the_group_itself():
    method = build(parse_settings({"name": "restrain", "prompt_weight": "online"}))
    assert method.score(group(8, 8)).prompt_weight == pytest.approx(math.exp(-0.5))
    assert not method.needs_reference


def test_kl_weight_can_be_left_alone():
    score = restrain(prompt_weight=0.5, scale_kl=False).score(group(12, 4))
    assert (score.prompt_weight, score.kl_weight) == (0.5, 1.0)


def test_offline_prompt_weight_without_a_reference_is_an_error():
    with pytest.raises(ReferencePassError, match="restrain reference"):
        build(parse_settings({"name": "restrain"})).score(group(12, 4))


def test_sigma_zero_gives_the_majority_all_weight_and_ties_share_it():
    assert restrain(sigma=0).score(group(12, 4)).label_weights.tolist() == [1.0, 0.0]
    assert restrain(sigma=0).score(group(8, 8)).label_weights.tolist() == [0.5, 0.5]
    weight = restrain(sigma=0, prompt_weight="offline").score
    assert weight(group(12, 4), PromptFacts(reference=ReferenceVote(16, 16))).prompt_weight == 1.0
    assert weight(group(12, 4), PromptFacts(reference=ReferenceVote(15, 16))).prompt_weight == 0.0


def test_ttrl_ties_go_to_the_first_label_or_are_shared():
    first = build(parse_settings({"name": "ttrl"})).score([1, 0, 0, 1])
    shared = build(parse_settings({"name": "ttrl", "ties": "split"})).score([1, 0, 0, 1])
    assert first.label_weights.tolist() == [1.0, 0.0]
    assert shared.label_weights.tolist() == [0.5, 0.5]


def test_srt_offline_trains_on_the_stored_label():
    method = build(parse_settings({"name": "srt_offline"}))
    facts = PromptFacts(reference=ReferenceVote(9, N), stored_class=1)
    assert method.score(group(12, 4), facts).rewards.tolist() == [0.0] * 12 + [1.0] * 4
    with pytest.raises(ReferencePassError):
        method.score(group(12, 4))


def test_labels_equally_far_from_k_have_equal_weights_however_narrow_g_is():
    """2/3 and 1/3 are both 1/6 from k = 1/2, as are the shares of all pairs that sum to 1."""
    for n in range(2, 65):
        for count in range(1, n):
            weights = restrain(sigma=0, k=0.5).score([0] * count + [1] * (n - count)).label_weights
            assert weights.tolist() == [0.5, 0.5]
