"""Overlap of training prompts with benchmarks: shared runs of words, whole short problems, nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.data.contamination import overlaps, words
from restrain_openrlhf.errors import DataError

LONG = "a train leaves the station at noon and travels north at 60 miles per hour for three hours"


def test_spacing_case_dollars_and_punctuation_do_not_count():
    assert words("Let $x^2 + 1=0$, and\n\\frac{1}{2}.") == words("let x^2+1 = 0 and \\frac 1 2")


def test_a_shared_run_is_found_with_its_share():
    prompts = [("t0", "an unrelated prompt"), ("t1", f"Suppose {LONG}. How far?")]
    (found,) = overlaps(prompts, {"b": [("q", LONG.upper()), ("r", "nothing of the kind")]}, n=8)
    assert (found.benchmark, found.problem_id, found.prompt_id, found.share, found.exact) == (
        "b",
        "q",
        "t1",
        1.0,
        False,
    )
    half = overlaps(prompts, {"b": [("q", "a train leaves the station at noon and then it waits")]}, n=8)
    assert [item.share for item in half] == [pytest.approx(1 / 4)]


def test_a_problem_shorter_than_the_run_counts_only_word_by_word():
    assert overlaps([("t", "What is 1+1 today?")], {"b": [("q", "What is 1+1?")]}, n=13) == []
    (found,) = overlaps([("t", "what is 1 + 1")], {"b": [("q", "What is $1+1$?")]}, n=13)
    assert found.exact


def test_a_run_of_no_words_is_refused():
    with pytest.raises(DataError, match="1 or more"):
        overlaps([], {}, n=0)


@given(st.lists(st.sampled_from("a b c d".split()), min_size=1, max_size=12), st.integers(1, 6))
def test_a_text_always_overlaps_with_itself(tokens, n):
    text = " ".join(tokens)
    (found,) = overlaps([("t", text)], {"b": [("q", text)]}, n=n)
    assert found.exact
    assert found.share == 1.0
