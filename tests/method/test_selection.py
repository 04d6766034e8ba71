"""Which prompts SRT calls easy."""

from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.method.methods.srt import AtLeast, Easiest

SHARES = st.lists(st.floats(0, 1), min_size=1, max_size=40)


def test_the_top_third_is_kept_in_the_order_of_the_prompts():
    assert Easiest(1 / 3)([0.1, 0.9, 0.5, 0.9, 0.2, 0.7]) == [1, 3]


def test_a_cutoff_keeps_what_stands_exactly_at_it():
    assert AtLeast(0.75)([0.75, 0.7499, 1.0]) == [0, 2]


@given(SHARES, st.floats(0.01, 1))
def test_nothing_left_out_is_easier_than_what_is_kept(shares, share):
    kept = Easiest(share)(shares)
    left = [value for position, value in enumerate(shares) if position not in kept]
    assert kept == sorted(kept)
    assert min(shares[position] for position in kept) >= max(left, default=0)


def test_the_method_says_that_it_needs_the_offline_pass():
    easy = build(parse_settings({"name": "srt_easy"}))
    assert easy.needs_reference
    assert easy.selection == Easiest(1 / 3)
    assert build(parse_settings({"name": "srt_easy", "easy_cutoff": 0.9})).selection == AtLeast(0.9)
    assert build(parse_settings({"name": "ttrl"})).selection is None
