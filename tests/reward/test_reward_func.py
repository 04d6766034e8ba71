"""The reward function as OpenRLHF calls it: one query, in a thread, by file path."""

import importlib.util

import pytest

from restrain_openrlhf.reward import reward_func as module


def load_as_the_host_does():
    """openrlhf/utils/agent.py, SingleTurnAgentExecutor.__init__."""
    spec = importlib.util.spec_from_file_location("reward_func", module.__file__)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded.reward_func


@pytest.mark.parametrize(
    ("response", "label", "reward"),
    [
        (r"so \boxed{0579}<eos>", "579", 1.0),
        (r"so \boxed{578}", "579", 0.0),
        ("no answer", "579", 0.0),
        (r"so \boxed{579}", "", None),
    ],
)
def test_labelled_rows_are_graded_and_others_left_to_the_hook(response, label, reward):
    prompt = r"What is \boxed{123+456}?"
    assert load_as_the_host_does()([prompt + response], [prompt], [label]) == {"rewards": reward, "scores": reward}
