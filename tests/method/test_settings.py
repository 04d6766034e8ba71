"""Everything a user can type under `method:`, and what bad input gets."""

import math

import pytest

from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import parse_settings


def test_defaults_are_the_papers():
    settings = parse_settings({"name": "restrain"})
    assert settings.model_dump() == {
        "name": "restrain",
        "std": "unbiased",
        "eps": 1e-6,
        "missing": "exclude",
        "delta": 1.0,
        "label_weights": "gaussian",
        "sigma": 0.5,
        "k": 1.0,
        "kappa": 3.0,
        "prompt_weight": "offline",
        "prompt_sigma": None,
        "scale_kl": True,
        "ties": "first",
        "gold": "ignored",
        "labelled_share": None,
    }


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({}, "is not a method"),
        ({"name": "restran"}, "Did you mean 'restrain'"),
        ({"name": 3}, "is not a method"),
        ({"name": ["restrain"]}, "is not a method"),
        ({"name": "restrain", "kapa": 3}, "'kapa' is not a setting of restrain. Did you mean 'kappa'"),
        ({"name": "ttrl", "kappa": 3}, "'kappa' is not a setting of ttrl"),
        ({"name": "ttrl", "ties": "share"}, "ties: Input should be 'first' or 'split', but 'share' was given"),
        ({"name": "ttrl", "delta": 2}, "delta: it has an effect only with missing: penalize"),
        ({"name": "ttrl_guard", "window": 0}, "window"),
        ({"name": "ttrl_guard", "lambda1": 1.5}, "lambda1"),
        ({"name": "ttrl_guard", "gold": "where_given"}, "'gold' is not a setting of ttrl_guard"),
        ({"name": "grpo_gold", "sigma": 1}, "'sigma' is not a setting of grpo_gold"),
        ({"name": "srt_offline", "eps": True}, "eps: a number is needed"),
        ({"name": "restrain", "sigma": -0.1}, "sigma"),
        ({"name": "restrain", "sigma": "wide"}, "sigma"),
        ({"name": "restrain", "sigma": math.nan}, "sigma"),
        ({"name": "restrain", "sigma": True}, "sigma: a number is needed"),
        ({"name": "restrain", "k": math.nan}, "k: "),
        ({"name": "restrain", "k": 1.5}, "k: "),
        ({"name": "restrain", "kappa": 2.5}, "whole"),
        ({"name": "restrain", "kappa": -1}, "kappa"),
        ({"name": "restrain", "delta": -1}, "delta"),
        ({"name": "restrain", "delta": math.inf}, "delta"),
        ({"name": "restrain", "kappa": math.inf}, "kappa"),
        ({"name": "restrain", "eps": -1}, "eps"),
        ({"name": "restrain", "eps": math.inf}, "eps"),
        ({"name": "restrain", "scale_kl": "yes"}, "scale_kl"),
        ({"name": "restrain", "std": "sample"}, "std"),
        ({"name": "restrain", "missing": "as_label"}, "missing: Input should be 'exclude' or 'penalize'"),
        ({"name": "restrain", "label_weights": "mean"}, "Input should be 'gaussian', 'majority' or 'uniform'"),
        ({"name": "restrain", "belief": "gaussian"}, "'belief' is not a setting of restrain"),
        ({"name": "restrain", "prompt_weight": "offlin"}, "'none' or Input should be a valid number"),
        ({"name": "restrain", "prompt_weight": -0.5}, "prompt_weight"),
        ({"name": "restrain", "prompt_weight": math.nan}, "prompt_weight"),
        ({"name": "ttrl", "votes": 4, "train_on": 8}, "train_on: 8 rollouts cannot be the first of 4 votes"),
        ({"name": "ttrl", "train_on": 8}, "cannot be the first of no stated number of votes"),
        ({"name": "ttrl", "votes": 1}, "votes: Input should be greater than or equal to 2"),
        ({"name": "ettrl", "votes": 8}, "'votes' is not a setting of ettrl"),
        ({"name": "ettrl", "ear": "soft"}, "ear: Input should be 'residual' or 'none'"),
        ({"name": "ettrl", "entropy_top_k": 21}, "entropy_top_k: Input should be less than or equal to 20"),
        ({"name": "ettrl", "trees": 2.5}, "trees: Input should be a valid integer"),
        ({"name": "srt_easy", "easy_share": 0}, "easy_share: Input should be greater than 0"),
        ({"name": "srt_easy", "easy_share": 1.5}, "easy_share: Input should be less than or equal to 1"),
        ({"name": "srt_easy", "easy_cutoff": 1.5}, "easy_cutoff: Input should be less than or equal to 1"),
        ({"name": "srt_easy", "easy_share": 0.5, "easy_cutoff": 0.8}, "both say which prompts are easy"),
        ({"name": "restrain", "prompt_weight": "none", "prompt_sigma": 1}, "prompt_sigma has no effect"),
        ({"name": "scrl", "entropy_top_k": 20}, "Set votes too"),
        ({"name": "scrl", "entropy_penalty": 0.2}, "no effect without entropy_top_k"),
    ],
)
def test_bad_settings_name_the_key(block, message):
    with pytest.raises(ConfigError) as error:
        parse_settings(block)
    assert message in str(error.value)


@pytest.mark.parametrize("method", ["restrain", None, 3, ["restrain"]])
def test_a_method_that_is_no_block_of_settings_is_refused(method):
    with pytest.raises(ConfigError, match="is not a block of settings"):
        HookConfig(method=method)


@pytest.mark.parametrize("name", ["ttrl", "srt_offline", "grpo_gold"])
def test_delta_counts_where_missing_answers_are_penalised_and_survives_the_way_to_a_worker(name):
    for block in ({"name": name}, {"name": name, "missing": "penalize", "delta": 2}):
        sent = HookConfig(method=parse_settings(block))
        assert HookConfig.model_validate_json(sent.model_dump_json()) == sent


@pytest.mark.parametrize("sigma", [0, 0.5, math.inf])
def test_settings_survive_the_way_to_a_worker(sigma):
    sent = HookConfig(method=parse_settings({"name": "restrain", "sigma": sigma, "kappa": 0.2}))
    assert HookConfig.model_validate_json(sent.model_dump_json()) == sent
