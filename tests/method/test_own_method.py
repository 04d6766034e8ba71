"""A method of one's own, from outside the package: in one process, and installed as a package of its own."""

import json
import os
import subprocess
import sys
from typing import Literal

import pytest

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import METHODS, Votes, build, parse_settings, register
from restrain_openrlhf.method.beliefs import Majority, Uniform
from restrain_openrlhf.method.methods import compose
from restrain_openrlhf.method.settings import SETTINGS, CommonSettings
from tests.conftest import ROOT

# The whole of somebody else's package.
PLUGIN = """
from typing import Literal
from restrain_openrlhf.method import register
from restrain_openrlhf.method.beliefs import Uniform
from restrain_openrlhf.method.methods import compose
from restrain_openrlhf.method.settings import CommonSettings

class EverySettings(CommonSettings):
    name: Literal["every_label"] = "every_label"

register("every_label", EverySettings, lambda settings: compose(settings, Uniform()))
"""


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
    with pytest.raises(ConfigError, match="Did you mean 'share'"):
        parse_settings({"name": "confident", "shar": 0.7})


@pytest.mark.parametrize("name", ["restrain", "confident"])
@pytest.mark.usefixtures("registered")
def test_a_name_that_is_taken_is_refused(name):
    with pytest.raises(ConfigError, match="registered already"):
        register(name, ConfidentSettings, confident)


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
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "restrain_openrlhf.cli.main",
            "score",
            rollouts,
            "--method",
            "every_label",
            "--out",
            out,
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        env={**os.environ, "PYTHONPATH": str(folder)},
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
