"""A method of one's own, from outside the package."""

from typing import Literal

import pytest

from restrain_openrlhf.method import METHODS, Votes, build, parse_settings, register
from restrain_openrlhf.method.beliefs import Majority, Uniform
from restrain_openrlhf.method.methods import compose
from restrain_openrlhf.method.settings import SETTINGS, CommonSettings


class ConfidentSettings(CommonSettings):
    name: Literal["confident"] = "confident"
    share: float = 0.5


def confident(settings: ConfidentSettings):
    def belief(votes: Votes, facts):
        sure = votes.majority_count >= settings.share * votes.n
        return (Majority() if sure else Uniform())(votes, facts)

    belief.reads_gold = belief.needs_reference = False
    return compose(settings, belief)


@pytest.fixture
def registered():
    register("confident", ConfidentSettings, confident)
    yield
    del METHODS["confident"], SETTINGS["confident"]


@pytest.mark.usefixtures("registered")
def test_a_method_from_outside_is_known_by_name_and_strict_like_the_others():
    method = build(parse_settings({"name": "confident", "share": 0.7}))
    assert method.score([0, 0, 0, 1]).label_weights.tolist() == [1.0, 0.0]
    assert method.score([0, 0, 1, 1]).label_weights.tolist() == [0.5, 0.5]
