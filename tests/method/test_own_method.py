"""A method from outside the package: in one process, and installed as a package of its own."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Literal

import pytest

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import METHODS, Method, PromptFacts, ReferenceVote, build, parse_settings, register
from restrain_openrlhf.method.label_weightings import LabelWeighting, Majority, Stored, Uniform
from restrain_openrlhf.method.settings import CommonSettings
from restrain_openrlhf.method.types import NOTHING, Fact
from tests.conftest import ROOT

# The whole of somebody else's package.
PLUGIN = """
from typing import Literal
from restrain_openrlhf.method import register
from restrain_openrlhf.method.label_weightings import Uniform
from restrain_openrlhf.method.settings import CommonSettings

@register
class EveryLabel(CommonSettings):
    name: Literal["every_label"] = "every_label"

    def build(self):
        return self.compose(Uniform())
"""


class WhereConfident(LabelWeighting):
    """The majority where it has half of the votes, else every label."""

    reads = NOTHING

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
    del METHODS["confident"]


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


def test_a_part_that_does_not_say_what_it_reads_cannot_be_made():
    class Silent(LabelWeighting):
        def __call__(self, votes, facts):
            return Uniform()(votes, facts)

    with pytest.raises(TypeError, match="reads"):
        Silent()


@pytest.mark.parametrize("stated", [frozenset(facts) for facts in ([], [Fact.GOLD], [Fact.REFERENCE, Fact.ENTROPIES])])
def test_a_part_receives_the_facts_that_it_reads_and_no_others(stated):
    seen = []

    class Curious(LabelWeighting):
        reads = stated

        def __call__(self, votes, facts):
            seen.append(facts)
            return Uniform()(votes, facts)

    method = Method("curious", Curious())
    method.score([0, 1], PromptFacts(ReferenceVote(3, 4), stored_class=0, gold_class=1, entropies=(0.1, 0.2)))
    assert seen == [
        PromptFacts(
            reference=ReferenceVote(3, 4) if Fact.REFERENCE in stated else None,
            stored_class=0 if Fact.REFERENCE in stated else None,
            gold_class=1 if Fact.GOLD in stated else None,
            entropies=(0.1, 0.2) if Fact.ENTROPIES in stated else None,
        )
    ]
    assert (method.reads_gold, method.needs_reference) == (Fact.GOLD in stated, Fact.REFERENCE in stated)


@pytest.mark.parametrize("extra", [Stored(), (Uniform(), Stored())])
def test_a_field_added_to_the_composition_counts_in_what_it_reads(extra):
    @dataclass(frozen=True)
    class Extended(Method):
        extra: object = None

    assert Extended("extended", Uniform(), extra=extra).needs_reference
    assert not Extended("extended", Uniform()).needs_reference


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
    command = [sys.executable, "-m", "restrain_openrlhf.cli.main", "score", rollouts, "--method", "every_label"]
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
