"""The tables of docs/concepts/kinds.md are true; each kind is total and quick on any text."""

import re

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

import test_time.cli
from restrain_openrlhf.answers.kind import KINDS, parse_kind
from restrain_openrlhf.commands import main as restrain
from tests.answers.kinds.shapes import STRANGE, slowest
from tests.conftest import ROOT
from tests.docs.printed import section

PAGE = (ROOT / "docs" / "concepts" / "kinds.md").read_text(encoding="utf-8")
NAMES = ("choice", "text", "number", "json")
ROWS = {
    "choice": {"problem": "Capital of France?", "options": ["London", "Paris", "A dog", "None of the above"]},
    "text": {"problem": "Capital of France?", "aliases": ["Paris", "Paname"]},
    "number": {"problem": "How far?"},
    "json": {"problem": "Which city?"},
}
CELL = r"`((?:[^`]|(?<=\S)`(?=\S))+)`"


def tables(name, columns):
    """The rows below each head of these columns in a kind's section."""
    head = re.escape(f"| {' | '.join(columns)} |")
    bodies = re.findall(rf"^{head}\n\|[-|]+\|\n((?:\|.*\|\n)+)", section(PAGE, name), re.MULTILINE)
    return [re.split(r" \| ", line[2:-2]) for body in bodies for line in body.splitlines()]


def text_of(cell):
    found = re.fullmatch(CELL, cell.strip())
    return found[1].replace("↵", "\n") if found else None


CASES = [(name, *row) for name in NAMES for row in tables(name, ("response", "answer"))]
PAIRS = [(name, *row) for name in NAMES for row in tables(name, ("one", "other", "equal"))]


def test_the_page_has_tables_of_each_kind():
    assert len(CASES) > 25
    assert len(PAIRS) > 20
    assert {name for name, *_ in CASES} == set(NAMES)


@pytest.mark.parametrize(("name", "response", "answer"), CASES)
def test_what_the_page_says_is_read(name, response, answer):
    row = ROWS[name] if name == "choice" else {}
    assert parse_kind({"name": name}).extract(text_of(response), row) == text_of(answer)
    assert (text_of(answer) is None) is answer.startswith("none: ")


@pytest.mark.parametrize(("name", "one", "other", "equal"), PAIRS)
def test_what_the_page_says_is_equal(name, one, other, equal):
    kind = parse_kind({"name": name})
    first, second = kind.classes([text_of(one), text_of(other)], {})
    assert (first == second) is equal.startswith("yes")
    if "`unordered: true` yes" in equal:
        unordered = parse_kind({"name": name, "unordered": True})
        assert len(set(unordered.classes([text_of(one), text_of(other)], {}))) == 1


def test_values_in_a_unit_are_as_the_page_says():
    pytest.importorskip("pint", reason="needs Pint: pip install restrain-openrlhf[units]")
    kind, cases = parse_kind({"name": "number"}), tables("number", ("response", "value"))
    assert len(cases) > 3
    for response, value in cases:
        answer = kind.extract(text_of(response), {"unit": "km"})
        assert (answer and kind.key(answer, {"unit": "km"})) == text_of(value)


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_says_what_it_means_and_every_column_is_on_the_page(name):
    kind = KINDS[name]
    assert [key for key, field in kind.model_fields.items() if key != "name" and not field.description] == []
    assert kind.__doc__
    assert parse_kind({"name": name}).instruction_for({})
    assert [column for column in kind.columns if f"`{column}`" not in section(PAGE, name)] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_megabyte_of_hostile_text_takes_less_than_a_second(name):
    """Three readings of each."""
    seconds, atom, size = slowest(parse_kind({"name": name}), ROWS[name])
    assert seconds < 3.0, (atom, size)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60)
@given(st.text(max_size=60), st.sampled_from(["", "The answer is ", "<answer>", "\\boxed{", "```\n"]))
def test_any_text_is_read(name, text, before):
    kind, row = parse_kind({"name": name}), ROWS[name]
    for response in (before + text, f"{before}{text}</answer>", *STRANGE):
        answer = kind.extract(response, row)
        assert answer is None or answer.strip()
        key = kind.key(response if answer is None else answer, row)
        assert key == kind.key(response if answer is None else answer, row)
        assert kind.classes([answer, None, answer], row) == ([None] * 3 if answer is None else [0, None, 0])


def test_the_page_names_the_commands_that_take_a_kind():
    found = {
        f"{before}{name}"
        for before, app in (("", restrain.app), ("test-time ", test_time.cli.app))
        for name, command in typer.main.get_command(app).commands.items()
        if any("--answers" in option.opts for option in command.params)
    }
    (named,) = re.findall(r"the commands that read answers \((.*?)\)", PAGE)
    assert set(re.findall(r"`(.*?)`", named)) == found
