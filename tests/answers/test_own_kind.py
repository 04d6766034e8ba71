"""A kind of answer from outside the package: in one process, and installed as a package of its own."""

import json
from typing import ClassVar, Literal

import pytest

from restrain_openrlhf.answers import KINDS, MATHEMATICS, AnswerKind, parse_kind, register
from restrain_openrlhf.errors import ConfigError, DataError
from tests.conftest import ROOT
from tests.docs.printed import fenced
from tests.own_folder import python_with

PAGE = (ROOT / "docs" / "concepts" / "kinds.md").read_text(encoding="utf-8")


class Signed(AnswerKind):
    """The last word, of which the row says the sign; one setting."""

    version: ClassVar[str] = "3"
    reads: ClassVar[str] = "The last word is the answer."
    columns: ClassVar[frozenset[str]] = frozenset({"sign"})

    name: Literal["signed"] = "signed"
    lower: bool = True

    def extract(self, response, row):
        return f"{row.get('sign', '')}{response.split()[-1]}" if response.split() else None

    def key(self, answer, row):
        return answer.lower() if self.lower else answer


@pytest.fixture
def signed():
    yield register(Signed)
    del KINDS["signed"]


@pytest.mark.usefixtures("signed")
def test_a_kind_from_outside_is_known_by_name_and_strict_like_the_others():
    kind = parse_kind({"name": "signed", "lower": False})
    assert kind.classes(["A", "a", None, "A"], {}) == [0, 1, None, 0]
    assert parse_kind({"name": "signed"}).classes(["A", "a", None, "A"], {}) == [0, 0, None, 0]
    with pytest.raises(ConfigError, match="Did you mean 'lower'"):
        parse_kind({"name": "signed", "lowr": True})
    with pytest.raises(ConfigError, match=r"is not a kind of answer.*Did you mean 'signed'"):
        parse_kind({"name": "signd"})


def test_its_identity_tells_versions_and_settings_apart():
    assert Signed().identity == "signed 3"
    assert Signed(lower=False).identity == "signed 3 lower=False"
    assert MATHEMATICS.identity == f"math {MATHEMATICS.version}"


def test_a_row_has_the_problem_and_the_columns_that_the_kind_reads_and_no_gold():
    row = {"problem": "stated", "sign": "-", "answer": "secret", "other": 1}
    assert Signed().row("asked", row) == {"problem": "asked", "sign": "-"}
    assert Signed().row("asked", {"row": {"sign": "+", "answer": "secret"}}) == {"problem": "asked", "sign": "+"}
    assert MATHEMATICS.row("asked", row) == {"problem": "asked"}


@pytest.mark.usefixtures("signed")
def test_mixed_rows_name_their_kinds():
    kind = parse_kind({"name": "mixed", "kinds": {"signed": {"lower": False}}})
    own = kind.row("p", {"answers": "signed", "sign": "-", "answer": "secret"})
    assert own == {"problem": "p", "answers": "signed", "sign": "-"}
    assert kind.extract("so A", own) == "-A"
    assert kind.classes(["A", "a"], own) == [0, 1]
    assert kind.key("1/2", {}) == kind.key("0.5", {}) != kind.key("1/2", own)
    # An answer of one kind is none of another, among the most common answers of all prompts.
    assert kind.key("B", {"answers": "choice"}) != kind.key("B", {"answers": "text"})
    assert kind.key("b", {"answers": "number"}) != kind.key("text b", {"answers": "text"})
    with pytest.raises(DataError, match="'signd' in its column 'answers'"):
        kind.extract("so A", {"problem": "p", "answers": "signd"})


def installed(folder, name, module=None):
    """A distribution with a kind of answer, laid out as an installer would."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[restrain_openrlhf.answers]\n{name} = {module or name}\n")


def test_the_pages_kind_works_where_it_is_installed(tmp_path):
    """The page's whole package; another process reads it from a run's variable."""
    *_, source = fenced(PAGE, "python")
    (tmp_path / "last_word.py").write_text(source)
    installed(tmp_path, "last_word")
    script = (
        "import json, sys; from restrain_openrlhf.config.yaml_file import HookConfig;"
        "kind = HookConfig.model_validate_json(sys.argv[1]).answers;"
        "answers = [kind.extract(text, {}) for text in ('It is Red.', 'so red', '')];"
        "print(json.dumps([answers, kind.classes(answers, {})]))"
    )
    config = json.dumps({"method": {"name": "ttrl"}, "answers": {"name": "last_word"}})
    done = python_with(tmp_path, "-c", script, config)
    assert json.loads(done.stdout or "null") == [["Red", "red", None], [0, 0, None]], done.stderr


def test_a_package_that_does_not_load_is_named(tmp_path):
    installed(tmp_path, "broken", "not_there")
    script = "from restrain_openrlhf.answers import parse_kind; parse_kind({'name': 'broken'})"
    done = python_with(tmp_path, "-c", script)
    assert "The entry point 'broken' of restrain_openrlhf.answers names 'not_there'" in done.stderr
