"""A method from outside the package: in one process, and installed as a package of its own."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import METHODS, History, PromptFacts, ReferenceVote, build, parse_settings, register
from restrain_openrlhf.method.advantages import majority, uniform
from restrain_openrlhf.method.settings import CommonSettings
from restrain_openrlhf.method.types import PastVote, count_votes


@pytest.fixture
def confident():
    @register
    class Confident(CommonSettings):
        """The majority where it has a share of the votes, else every label."""

        name: Literal["confident"] = "confident"
        share: float = 0.5

        def score(self, votes, facts):
            sure = votes.majority_count >= self.share * votes.n
            return self.of_labels(votes, majority(votes) if sure else uniform(votes))

    yield Confident
    del METHODS["confident"]


@pytest.mark.usefixtures("confident")
def test_a_method_from_outside_is_known_by_name_and_strict_like_the_others():
    method = build(parse_settings({"name": "confident", "share": 0.7}))
    assert method.score([0, 0, 0, 1]).label_weights.tolist() == [1.0, 0.0]
    assert method.score([0, 0, 1, 1]).label_weights.tolist() == [0.5, 0.5]
    with pytest.raises(ConfigError, match="Did you mean 'share'"):
        parse_settings({"name": "confident", "shar": 0.7})


def test_the_pages_own_method_gives_what_the_page_says():
    """3 of 16 agree: shares .1875 and .0625, mean .0859, std .0504. As weights of labels they give .175 (eq. 6)."""
    page = (Path(__file__).parents[2] / "docs/concepts/method.md").read_text(encoding="utf-8")
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "@register" in block)
    group, shares = [0, 0, 0, *range(1, 14)], np.array([3] + [1] * 13) / 16
    exec(code, {"__name__": "proportional"})
    try:
        settings = parse_settings({"name": "proportional"})
    finally:
        del METHODS["proportional"]
    assert build(settings).score(group).pair.net[0] == pytest.approx(2.016, abs=5e-4)
    assert settings.of_labels(count_votes(group), shares).pair.net[0] == pytest.approx(0.175, abs=5e-4)
    assert "+2.016" in page
    assert "+.175" in page


def test_every_method_has_a_row_on_its_page():
    page = (Path(__file__).parents[2] / "docs/concepts/method.md").read_text(encoding="utf-8")
    missing = [name for name in METHODS if not re.search(rf"^\| `{name}` \| `method/methods/\w+\.py` \| ", page, re.M)]
    assert not missing, "add a row to the table of methods in docs/concepts/method.md"


def test_a_name_that_is_taken_is_refused(confident):
    for taken in (confident, METHODS["restrain"]):
        with pytest.raises(ConfigError, match="registered already"):
            register(taken)


def test_a_method_without_a_name_is_refused():
    class Nameless(CommonSettings):
        def score(self, votes, facts):
            return self.of_labels(votes, uniform(votes))

    with pytest.raises(ConfigError, match="Nameless has no name"):
        register(Nameless)


FACTS = {
    **{"reference": ReferenceVote(3, 4), "stored_class": 0, "gold_class": 1, "entropies": (0.1, 0.2)},
    "history": History((PastVote(0.5, True),), 1),
}


@pytest.mark.parametrize(
    "stated", [(), ("gold_class",), ("reference", "entropies"), ("reference", "stored_class"), tuple(FACTS)]
)
def test_a_method_receives_the_facts_that_it_reads_and_no_others(stated):
    assert FACTS.keys() | {"has_gold"} == {field.name for field in fields(PromptFacts)}
    told = []

    class Curious(CommonSettings):
        name: Literal["curious"] = "curious"

        @property
        def reads(self):
            return frozenset(stated)

        def score(self, votes, facts):
            told.append(facts)
            return self.of_labels(votes, uniform(votes))

    method = build(Curious())
    method.score([0, 1], PromptFacts(**FACTS, has_gold=True))
    assert told == [PromptFacts(**{name: FACTS[name] for name in stated})]
    assert (method.reads_gold, method.needs_reference) == ("gold_class" in stated, "reference" in stated)


def test_equal_settings_have_one_method():
    block = {"name": "restrain", "kappa": 5}
    assert build(parse_settings(block)) is build(parse_settings(block)) is not build(parse_settings({"name": "ttrl"}))
