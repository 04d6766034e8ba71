"""A method from outside the package: in one process, and installed as a package of its own."""

from typing import Literal

import pytest

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import METHODS, Method, PromptFacts, ReferenceVote, build, parse_settings, register
from restrain_openrlhf.method.composition import LabelWeighting, Majority, Transform, Uniform
from restrain_openrlhf.method.settings import CommonSettings


class WhereConfident(LabelWeighting):
    """The majority where it has half of the votes, else every label."""

    def __init__(self, share):
        self.share = share

    def __call__(self, votes, facts):
        sure = votes.majority_count >= self.share * votes.n
        return (Majority() if sure else Uniform())(votes, facts)


@pytest.fixture
def confident():
    @register
    class Confident(CommonSettings):
        name: Literal["confident"] = "confident"
        share: float = 0.5

        def build(self) -> Method:
            return self.compose(WhereConfident(self.share))

    yield Confident
    del METHODS.classes["confident"]


@pytest.mark.usefixtures("confident")
def test_a_method_from_outside_is_known_by_name_and_strict_like_the_others():
    method = build(parse_settings({"name": "confident", "share": 0.7}))
    assert method.score([0, 0, 0, 1]).label_weights.tolist() == [1.0, 0.0]
    assert method.score([0, 0, 1, 1]).label_weights.tolist() == [0.5, 0.5]
    with pytest.raises(ConfigError, match="Did you mean 'share'"):
        parse_settings({"name": "confident", "shar": 0.7})


def test_a_name_that_is_taken_is_refused(confident):
    for taken in (confident, METHODS["restrain"]):
        with pytest.raises(ConfigError, match="registered already"):
            register(taken)


def test_a_method_without_a_name_is_refused():
    class Nameless(CommonSettings):
        def build(self) -> Method:
            return self.compose(Uniform())

    with pytest.raises(ConfigError, match="Nameless has no name"):
        register(Nameless)


FACTS = {"reference": ReferenceVote(3, 4), "stored_class": 0, "gold_class": 1, "entropies": (0.1, 0.2)}


class CuriousWeighting(LabelWeighting):
    """Keeps what it is told; it does not say that it reads anything."""

    def __init__(self):
        self.told = []

    def __call__(self, votes, facts):
        self.told.append(facts)
        return Uniform()(votes, facts)


class CuriousTransform(Transform):
    """The same, after the label weights."""

    def __init__(self):
        self.told = []

    def __call__(self, score, facts):
        self.told.append(facts)
        return score


@pytest.mark.parametrize("stated", [(), ("gold_class",), ("reference", "entropies"), ("reference", "stored_class")])
def test_each_part_receives_the_facts_that_it_reads_and_no_others(stated):
    class Weighting(CuriousWeighting):
        reads = frozenset(stated)

    class Reshaping(CuriousTransform):
        reads = frozenset(stated)

    told = PromptFacts(**{name: FACTS[name] for name in stated})
    for weighting, transform in ((Weighting(), CuriousTransform()), (CuriousWeighting(), Reshaping())):
        method = Method("curious", weighting, (transform,))
        method.score([0, 1], PromptFacts(**FACTS))
        assert [facts for part in (weighting, transform) if part.reads for facts in part.told] == [told] * bool(stated)
        assert all(facts == PromptFacts() for part in (weighting, transform) if not part.reads for facts in part.told)
        assert (method.reads_gold, method.needs_reference) == ("gold_class" in stated, "reference" in stated)


def test_equal_settings_have_one_method():
    block = {"name": "restrain", "kappa": 5}
    assert build(parse_settings(block)) is build(parse_settings(block)) is not build(parse_settings({"name": "ttrl"}))
