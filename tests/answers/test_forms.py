"""Pairs of answers form by form: what is one vote, what must stay two, and what the rules merge on purpose."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.answers import canonical_key
from restrain_openrlhf.answers.kinds.mathematics import is_right
from tests.answers.pairs_by_form import FORMS


def equal(one, other):
    return canonical_key(one) == canonical_key(other)


@pytest.mark.parametrize("form", FORMS)
def test_no_near_miss_is_merged(form):
    assert [pair for pair in FORMS[form].apart if equal(*pair)] == []


@pytest.mark.parametrize("form", FORMS)
def test_equal_answers_are_one_vote_however_they_are_written(form):
    assert [pair for pair in FORMS[form].equal if not equal(*pair)] == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("|XY| = 5", "|XZ| = 5"),
        ("f(2) = 7", "f(3) = 7"),
        (r"\frac{AB}{CD} = 2", r"\frac{CD}{AB} = 2"),
        ("x=1, y=2", "k=1, n=2"),
        ("x=1, y=2", "1 < t < 2"),
        ("x_1 = 3, x_2 = -1", "x_1 = -1, x_2 = 3"),
        (r"x \approx 3.14", "x = 3.14"),
        ("2:3", "4:6"),
        ("[[1,2],[3,4]]", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
        ("123 456", "123456"),
        (r"\varepsilon", r"\epsilon"),
        ("x<1, x>2", r"x < 1 \text{ or } x > 2"),
    ],
)
def test_what_the_page_says_is_merged_on_purpose(one, other):
    """docs/concepts/answers.md, "What a rule may merge"."""
    assert equal(one, other)


def test_repeating_decimals_are_exact_and_told_apart():
    assert equal(r"0.1\overline{6}", r"\frac16")
    assert equal(r"0.\overline{36}", "4/11")
    assert not equal(r"0.\overline{3}", "0.3")
    assert not equal(r"0.\overline{4}", r"\frac59")


def test_units_between_digits_are_not_dropped():
    assert not equal(r"5 \text{ km } 300 \text{ m}", "5300")
    assert not equal(r"30^\circ 150^\circ", "30150")
    assert not equal(r"5 \text{ hours and } 30 \text{ minutes}", r"30 \text{ hours and } 5 \text{ minutes}")


def test_evaluation_reads_labels_and_approximations_as_votes_do():
    assert is_right(r"x \approx 3.14159", r"\pi")
    assert is_right(r"|XY| = 4.99999", "5")
    assert is_right("x = 1, y = 2", "1, 2")
    assert not is_right(r"2x \approx 3.14159", r"\pi")
    assert not is_right("f(2) = 0", "f(3) = 0")
    assert not is_right("n = 1 and r = 6", "n = 2 and r = 6")


numbers = st.integers(1, 10**12)


@given(numbers)
def test_a_number_is_the_same_in_groups_of_digits(number):
    for gap in (" ", r"\,", "~", "\u202f", "{,}", ","):
        assert equal(f"{number:,}".replace(",", gap), str(number))


@given(st.lists(st.integers(-99, 99), min_size=2, max_size=5), st.randoms())
def test_named_values_are_told_by_name_in_any_order(found, rng):
    named = [f"{letter}={number}" for letter, number in zip("abcde", found, strict=False)]
    shuffled = rng.sample(named, len(named))
    assert equal(", ".join(named), ", ".join(shuffled))
    assert equal(", ".join(named), f"({', '.join(map(str, found))})")
    swapped = [found[1], found[0], *found[2:]]
    assert equal(", ".join(named), f"({', '.join(map(str, swapped))})") is (found[0] == found[1])


@given(st.integers(0, 12), st.integers(0, 12))
def test_factorials_by_variables_agree_with_those_by_numbers(n, k):
    """What is equal with variables is equal with any numbers in their place."""
    one, other = r"\frac{(n+k)!}{n!k!}", r"\binom{n+k}{k}"

    def at(text):
        return re.sub(r"(?<![a-z])[nk](?![a-z])", lambda letter: f"({n if letter[0] == 'n' else k})", text)

    assert equal(one, other)
    assert equal(at(one), at(other))
