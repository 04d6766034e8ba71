"""Near-duplicates: what their normal form ignores, what it must keep apart, their groups, and linear time."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.data.near_duplicates import NearDuplicates, grouped, near_duplicates, normal_form

EQUAL = [
    ("Find $x-1$.", "find  x - 1"),
    ("Is it “so”?", 'is it "so"'),
    ("Let a, b; then: stop.", "let a b then stop"),
    (r"\[x\] and \(y\)", "$$x$$ and $y$"),
    (r"$2\,x\quad y$", "2x y"),
    (r"\left(a\right)", "(a)"),
    ("Alice’s", "Alice's"),
    ("x − 1 – y", "x-1-y"),
    ("1, 2, 3", "1,2,3"),
    ("$5$, $3$", "5, 3"),
    ("a\u00a0b\r\nc\u200b", "a b c"),
    ("e\u0301", "\u00e9"),
]
DIFFERENT = [
    ("x-1", "x+1"),
    ("-3", "3"),
    ("2^3", "23"),
    ("2 3", "23"),
    ("2*3", "2/3"),
    ("1.5", "15"),
    ("1.5", "1 5"),
    (".5", "5"),
    ("1,000", "1000"),
    ("2:3", "2 3"),
    ("5!", "5"),
    ("f'(x)", "f(x)"),
    ("A'B'", "AB"),
    ('5"', "5"),
    ("(a+b)c", "a+bc"),
    ("[0,1)", "(0,1]"),
    ("2^{34}", "2^{3}4"),
    ("x_1, ..., x_n", "x_1, x_n"),
    ("1, 2, …, 9", "1, 2, 9"),
    ("x²", "x2"),
    ("a<b", "a>b"),
    ("|a|", "a"),
    ("10%", "10"),
    (r"\{1\}", "{1}"),
    (r"\pi", "pi"),
    (r"\leq", r"\geq"),
    (r"a\\b", "a b"),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_case_punctuation_and_white_space_do_not_count(one, other):
    assert normal_form(one) == normal_form(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_has_a_meaning_in_mathematics_counts(one, other):
    assert normal_form(one) != normal_form(other)


MATHS = st.lists(st.sampled_from("a b 2 37 + - * / ^ ( ) { } ! ' = < > _ | %".split()), min_size=1, max_size=12)


@given(MATHS, MATHS)
def test_formulas_have_one_normal_form_only_if_they_have_the_same_signs_in_order(one, other):
    assert (normal_form(" ".join(one)) == normal_form(" ".join(other))) == (one == other)


@given(MATHS, st.sampled_from(" \t\n"), st.sampled_from(["", ".", "?", " ,", ":"]))
def test_layout_case_and_a_last_mark_never_matter(tokens, space, mark):
    text = " ".join(tokens)
    assert normal_form(f"{space}{text.upper()}{mark}") == normal_form(space.join(tokens)) == normal_form(f"${text}$")


def test_groups_stand_in_order_and_answers_conflict_as_text():
    problems = ["A?", "b", "a", "B!", "b.", "c", "a ?"]
    assert grouped(problems) == [[0, 2, 6], [1, 4]]
    found, going = near_duplicates(problems, ["1", "2", " 1", None, "3", "4", None])
    assert found == NearDuplicates(groups=2, prompts=5, conflicting=1)
    assert going == {2, 6, 1, 4}


def test_prompts_of_punctuation_alone_are_not_one_group():
    assert grouped(["?", ":", "?"]) == [[0, 2]]


def test_of_1600_real_problems_only_equal_ones_are_near_duplicates(shared):
    """AMC23 is part of AMC (83), word by word; nothing else in six benchmarks is equal in this form."""
    rows = [
        json.loads(line)["problem"]
        for path in sorted((shared / "benchmarks").glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    groups = grouped(rows)
    assert (len(rows), len(groups)) == (1600, 40)
    assert all(len({rows[place] for place in group}) == 1 for group in groups)
