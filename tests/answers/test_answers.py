"""Extraction, keys and classes: what training needs of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.answers import classes, extract


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"so \boxed{12}", "12"),
        (r"\boxed{1} or rather \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\boxed {7}", "7"),
        (r"\fbox{x+1}", "x+1"),
        (r"9750\boxed{579}", "579"),
        ("The final answer is 42.", "42"),
        ("Answer: $x=3$", "x=3"),
        ("#### 1,234", "1,234"),
        (r"\boxed 5", "5"),
        (r"<think>\boxed{1}</think> \boxed{2}", "2"),
        (r"\boxed{\left\{1,2\right\}}", r"\left\{1,2\right\}"),
        ("no answer here", None),
        (r"\boxed{}", None),
        (r"\boxed{unfinished", None),
        ("", None),
    ],
)
def test_the_last_final_answer_is_found(response, answer):
    assert extract(response) == answer


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("0579", "579", True),
        ("1,234", "1234", True),
        ("0.5", r"\frac{1}{2}", True),
        (r"\dfrac12", "1/2", True),
        ("-3", "3", False),
        ("x+1", " x + 1 ", True),
        ("10000", "10001", False),
        ("1e5", "100000", True),
    ],
)
def test_equal_answers_share_a_class(one, other, equal):
    assert (len(set(classes([one, other]))) == 1) is equal


def test_classes_are_numbered_by_first_appearance_and_skip_missing_answers():
    assert classes(["7", None, "3", "07", None, "3.0"]) == [0, None, 1, 0, None, 1]


@given(st.text(max_size=300))
def test_extraction_is_total_and_never_empty(text):
    answer = extract(text)
    assert answer is None or answer.strip()


@given(st.lists(st.text(max_size=20), max_size=12), st.randoms())
def test_classes_do_not_depend_on_order(answers, rng):
    order = list(range(len(answers)))
    rng.shuffle(order)
    straight, shuffled = classes(answers), classes([answers[i] for i in order])
    for a, i in enumerate(order):
        for b, j in enumerate(order):
            assert (shuffled[a] == shuffled[b]) == (straight[i] == straight[j])
