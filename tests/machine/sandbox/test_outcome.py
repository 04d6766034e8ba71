"""Outcomes are equal where Python's own `==` says so, and do not depend on hash seeds or places in memory."""

import math
import re
from datetime import UTC, date, datetime, timedelta
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
        ([1, 2], [2, 1], False),
        ((1, 2), (2, 1), False),
        ("1", 1, False),
        (iter([1, 2]), (each for each in [1, 2]), True),
        pytest.param(10**5000, 10**5000 + 1, False, id="long numbers"),
        (Decimal(2**70), Decimal(2**70 + 1), False),
        (Fraction(2**70), 2**70, True),
        (Decimal("1.5"), Fraction(3, 2), True),
        (date(2024, 1, 2), date(2024, 1, 3), False),
        (date(2024, 1, 2), date.fromisoformat("2024-01-02"), True),
        (datetime(2024, 1, 2, tzinfo=UTC), datetime(2024, 1, 2), False),
        (timedelta(hours=24), timedelta(days=1), True),
        (timedelta(hours=24), timedelta(hours=25), False),
        ({1: 2}.keys(), {1: 3}.keys(), True),
        ({1: 2, 3: 4}.keys(), {3: 4, 1: 2}.keys(), True),
        ({1: 2}.keys(), {3: 2}.keys(), False),
        ({1: 2}.values(), {1: 3}.values(), False),
        ({1: 2, 3: 4}.items(), {3: 4, 1: 2}.items(), True),
        ({1: 2}.items(), {1: 3}.items(), False),
        (memoryview(b"a"), b"a", True),
    ],
)
def test_values_by_hand(one, other, equal):
    assert (returned(one, False) == returned(other, False)) == equal


def test_a_value_that_contains_itself_has_no_outcome():
    loop = []
    loop.append(loop)
    with pytest.raises(RecursionError):
        returned(loop, False)


async def waits():
    return 1


class Own:
    def act(self):
        return 1


class Posing(date):
    def __repr__(self):
        return "datetime.date(2024, 1, 2)"


@pytest.mark.parametrize("value", [lambda: 1, Own, Own(), Own().act, [object()], re.compile("a"), Posing(2024, 1, 3)])
def test_what_nothing_can_be_seen_of_has_no_outcome(value):
    """Two of them would count as equal, whatever they do."""
    with pytest.raises(TypeError):
        returned(value, False)


def test_what_is_not_awaited_has_no_outcome():
    never = waits()
    with pytest.raises(TypeError):
        returned(never, False)
    never.close()


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
