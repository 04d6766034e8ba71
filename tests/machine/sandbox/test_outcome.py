"""Outcomes are equal where Python's own `==` says so, and do not depend on hash seeds or places in memory."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.machine.sandbox.outcome import printed, returned

plain = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, 2.0, "", "a", "1", b"a", "é\ud800"])
values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.integers(0, 2) | st.sampled_from(["a", "b"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(values, values)
def test_python_decides_what_is_equal(one, other):
    assert (returned(one, False) == returned(other, False)) == (one == other)


@given(st.lists(values, max_size=5), st.randoms(use_true_random=False))
def test_order_may_be_ignored(items, source):
    mixed = source.sample(items, len(items))
    assert returned(items, True) == returned(mixed, True)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (True, 1, True),
        ([False], [0.0], True),
        (0.1 + 0.2, 0.3, True),
        (3.0000000000001, 3, True),
        (0.3, 0.301, False),
        (1e300, 10**300, False),
        (2**60, 2**60 + 1, False),
        (Fraction(1, 2), 0.5, True),
        (Decimal("2"), 2, True),
        (-0.0, 0, True),
        (math.nan, math.nan, True),
        (math.inf, -math.inf, False),
        (1 + 0j, 1, True),
        ({1, 2}, frozenset([2, 1]), True),
        ([1, 2], (1, 2), False),
        ("1", 1, False),
        (iter([1, 2]), (each for each in [1, 2]), True),
        pytest.param(10**5000, 10**5000 + 1, False, id="long numbers"),
    ],
)
def test_values_by_hand(one, other, equal):
    assert (returned(one, False) == returned(other, False)) == equal


def test_other_objects_are_what_they_hold():
    class Point:
        def __init__(self, x):
            self.x = x

    class Slim:
        __slots__ = ("y",)

        def __init__(self, y):
            self.y = y

    assert returned(Point(1), False) == returned(Point(1.0), False) != returned(Point(2), False)
    assert returned(Slim(1), False) != returned(Slim(2), False)
    loop = []
    loop.append(loop)
    with pytest.raises(RecursionError):
        returned(loop, False)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("1 2\n", "1  2 \n\n", True),
        ("0.50\n", "0.5", True),
        ("1\n2", "2\n1", False),
        ("YES", "yes", False),
        ("1.10.1", "1.1.1", False),
    ],
)
def test_printed_text_as_a_judge_reads_it(one, other, equal):
    assert (printed(one, False) == printed(other, False)) == equal
