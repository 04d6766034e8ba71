"""A method from outside the package: in one process, and installed as a package of its own."""

import json
import os
import subprocess
import sys
from typing import Literal

import pytest

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import METHODS, Method, PromptFacts, ReferenceVote, build, parse_settings, register
from restrain_openrlhf.method.composition import LabelWeighting, Majority, Transform, Uniform
from restrain_openrlhf.method.settings import CommonSettings
from tests.conftest import ROOT

# The whole of somebody else's package.
PLUGIN = """
from typing import Literal
from restrain_openrlhf.method import register
from restrain_openrlhf.method.composition import Uniform
from restrain_openrlhf.method.settings import CommonSettings

@register
class EveryLabel(CommonSettings):
    name: Literal["every_label"] = "every_label"

    def build(self):
        return self.compose(Uniform())
"""


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


@pytest.fixture
def install(tmp_path):
    """Lay out a package with an entry point, as an installer would."""

    def lay_out(source):
        (tmp_path / "every_label.py").write_text(source)
        info = tmp_path / "every_label-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: every-label\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[restrain_openrlhf.methods]\nevery_label = every_label\n")
        return tmp_path

    return lay_out


def score_with(folder, rollouts, out):
    command = [sys.executable, "-m", "restrain_openrlhf.commands.main", "score", rollouts, "--method", "every_label"]
    return subprocess.run(
        [*command, "--out", out],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
    )


def test_an_installed_package_adds_a_method_by_its_entry_point(install, write_jsonl, tmp_path):
    rows = [{"id": 1, "problem": "p", "responses": ["\\boxed{1}", "\\boxed{1}", "\\boxed{2}"]}]
    done = score_with(install(PLUGIN), write_jsonl("r.jsonl", rows), tmp_path / "o.jsonl")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "o.jsonl").read_text())["label_weights"] == [0.5, 0.5]


def test_a_package_whose_method_does_not_load_is_named(install, write_jsonl, tmp_path):
    rollouts = write_jsonl("r.jsonl", [{"id": 1, "problem": "p", "responses": ["x"]}])
    done = score_with(install("import a_package_that_is_absent\n"), rollouts, tmp_path / "o.jsonl")
    assert done.returncode == 2
    assert "entry point 'every_label'" in done.stderr
    assert "Traceback" not in done.stderr
