"""Which prompts SRT calls easy."""

from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.method import build, parse_settings

SHARES = st.lists(st.floats(0, 1), min_size=1, max_size=40)


def easy(shares, **settings):
    return build(parse_settings({"name": "srt_easy", **settings})).selection(shares)


def test_the_top_third_is_kept_in_the_order_of_the_prompts():
    assert easy([0.1, 0.9, 0.5, 0.9, 0.2, 0.7]) == [1, 3]


def test_a_cutoff_keeps_what_stands_exactly_at_it():
    assert easy([0.75, 0.7499, 1.0], easy_cutoff=0.75) == [0, 2]


@given(SHARES, st.floats(0.01, 1))
def test_nothing_left_out_is_easier_than_what_is_kept(shares, share):
    kept = easy(shares, easy_share=share)
    left = [value for position, value in enumerate(shares) if position not in kept]
    assert kept == sorted(kept)
    assert min(shares[position] for position in kept) >= max(left, default=0)


def test_the_method_says_that_it_needs_the_offline_pass():
    assert build(parse_settings({"name": "srt_easy"})).needs_reference
    assert build(parse_settings({"name": "ttrl"})).selection is None
