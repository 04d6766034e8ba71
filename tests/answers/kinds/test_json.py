"""JSON: equal where Python's own values are, found wherever a response puts it, and missing where it is broken."""

import json
from fractions import Fraction
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from restrain_openrlhf.answers.kind import parse_kind
from restrain_openrlhf.errors import DataError
from tests.answers.kinds.shapes import is_equivalence_whatever_the_order, keys_are_classes

JSON, UNORDERED = parse_kind({"name": "json"}), parse_kind({"name": "json", "unordered": True})
NUMBERS = st.integers(-3, 3) | st.sampled_from([0.5, 1.0, 2.0, -1.0, 100.0, 1e22])
LEAVES = st.none() | st.booleans() | NUMBERS | st.text(alphabet='a1"\\{}[]é\n', max_size=3)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=5,
)
ROOTS = st.lists(VALUES, max_size=3) | st.dictionaries(st.sampled_from("ab"), VALUES, max_size=2)


def same(one, other, unordered=False):
    """Whether two values that Python read are equal; a truth value is no number."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key], unordered) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        orders = permutations(other) if unordered else [other]
        return len(one) == len(other) and any(
            all(same(a, b, unordered) for a, b in zip(one, order, strict=True)) for order in orders
        )
    if isinstance(one, bool) or isinstance(other, bool) or not isinstance(one, int | float):
        return type(one) is type(other) and one == other
    return isinstance(other, int | float) and Fraction(one) == Fraction(other)


@settings(max_examples=300)
@given(ROOTS, ROOTS)
def test_values_are_equal_where_python_says_so(one, other):
    texts = [json.dumps(one), json.dumps(other)]
    assert (JSON.key(texts[0], {}) == JSON.key(texts[1], {})) is same(one, other)
    assert (UNORDERED.key(texts[0], {}) == UNORDERED.key(texts[1], {})) is same(one, other, unordered=True)


@settings(max_examples=200)
@given(ROOTS, st.booleans(), st.sampled_from([None, 2]))
def test_a_value_is_found_in_every_place_and_is_the_same_in_every_spelling(value, ascii_only, indent):
    written = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    key = JSON.key(json.dumps(value, sort_keys=True), {})
    for form in ("{}", "```json\n{}\n```", "```\n{}\n```\nAs said in [1].", "The answer is:\n{}",
                 "First [7].\n{}\nDone.", "<think>[8]</think>{}<|im_end|>", "{}\n\nIt is 5\" tall."):  # fmt: skip
        answer = JSON.extract(form.replace("{}", written), {})
        assert answer is not None
        assert JSON.key(answer, {}) == key


@pytest.mark.parametrize(
    ("one", "other"),
    [("[1.0]", "[1]"), ("[1e2]", "[100]"), ("[0.10]", "[1e-1]"), ("[-0]", "[0.0]"),
     ('{"a":1,"b":2}', '{ "b":2, "a":1 }'),
     ('["\\u00e9"]', '["é"]'), (f"[{10**500}]", "[1e500]"), ("[12345678901234567890.0]", "[12345678901234567890]")],
)  # fmt: skip
def test_the_same_value(one, other):
    assert JSON.classes([one, other], {}) == [0, 0]


@pytest.mark.parametrize(
    ("one", "other"),
    [("[1]", '["1"]'), ("[true]", "[1]"), ("[null]", "[false]"), ("[1,2]", "[2,1]"), ("[]", "{}"), ("[[]]", "[]"),
     ("[12345678901234567890]", "[12345678901234567891]"), ("[0.1]", "[0.10000000000000000001]"), ('{"a":null}', "{}")],
)  # fmt: skip
def test_different_values(one, other):
    assert JSON.classes([one, other], {}) == [0, 1]


@pytest.mark.parametrize(
    "response",
    ["{'a': 1}", "[NaN]", "[Infinity]", "[1,]", '{"a": 1, "a": 2}', '{"x": {"a": 1, "a": 1}}', '{"a": [1, 2], "b": }',
     '{"a": [1, 2], "b": ', "[[1, 2], [3, 4]", "```json\n{\"a\": 1,\n```", "true", "5", '"text"', "",
     "[" * 101 + "]" * 101,
     "[" * 100_000, "[" * 50_000 + "]" * 50_000, '{"a":' * 50_000, "[1e99999999999999999999]", "[" + "9" * 1001 + "]",
     "[" + "1," * 50_001 + "1]", "[\ud800]", "[\0]",
     '[1] {"a": 1 "b": {"c": 2}} so', '{"a": 1} and {"b": [2]', "{\"a\": 1} and [[1, 2], [3, 4]"],
)  # fmt: skip
def test_what_is_broken_doubled_or_too_large_is_missing(response):
    assert JSON.extract(response, {}) is None


@pytest.mark.parametrize(
    ("response", "answer"),
    [("Lists: [1, 2], [3, 4]", "[3, 4]"), ("x {no json} [1] done", "[1]"), ('[1] and {"a": "}]"} and }', '{"a": "}]"}'),
     ("half open: [0, 1) then [2]", "[2]"), ("[" * 100 + "]" * 100, "[" * 100 + "]" * 100),
     ("\\boxed{[1, 2]}", "[1, 2]"),
     ('```json\n{"a": 1}\n```\nor\n```json\n{"a": 2}\n```', '{"a": 2}'), ("```python\nx = [1]\n```\n[2]", "[2]"),
     ('He said "no" to [1].', "[1]"), ("[1](url)", "[1]"), ("[1, 2], where {x} is a set", "[1, 2]"),
     ('{"a": 1,} or rather {"a": 1}', '{"a": 1}'), ('{"a": 1} in [0, 1)', '{"a": 1}'), ("[1, 2], [3, 4)", "[1, 2]")],
)  # fmt: skip
def test_the_last_value_is_the_answer(response, answer):
    assert JSON.extract(response, {}) == answer


def test_chosen_keys_alone_count_and_are_needed():
    kind = parse_kind({"name": "json", "keys": ["name", "places.0.city"]})
    texts = [
        '{"name": "Ann", "places": [{"city": "Bonn"}], "why": 1}',
        '{"places": [{"city": "Bonn", "zip": 2}, 7], "name": "Ann"}',
        '{"name": "Ann", "places": [{"city": "Ulm"}]}',
    ]
    assert kind.classes(texts, {}) == [0, 0, 1]
    assert [kind.extract(text, {}) for text in texts] == texts
    for lacking in ('{"name": "Ann"}', '{"name": "Ann", "places": []}', '{"name": 1, "places": {"0": 5}}', "[1]"):
        assert kind.extract(lacking, {}) is None
    with pytest.raises(DataError, match="gold answer"):
        kind.is_right(texts[0], '{"name": "Ann"}', {"problem": "Who?"})
    assert kind.is_right(texts[0], texts[1], {})
    assert not kind.is_right(texts[2], texts[1], {})
    assert not kind.is_right(None, texts[1], {})


@given(
    st.lists(st.sampled_from(["[1]", "[1.0]", "[2]", '{"a":1}', '{"a": 1e0}', "[true]", None]), min_size=1, max_size=5)
)
def test_being_the_same_value_is_an_equivalence(answers):
    is_equivalence_whatever_the_order(JSON, {}, answers)
    keys_are_classes(JSON, {}, [answer for answer in answers if answer])
