"""Overlap of training prompts with benchmarks: shared runs of words, whole short problems, nothing else."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.data.contamination import (
    Band,
    Overlap,
    band_of,
    overlaps,
    words,
)

LONG = "a train leaves the station at noon and travels north at 60 miles per hour for three hours"


def test_spacing_case_dollars_and_punctuation_do_not_count():
    assert words("Let $x^2 + 1=0$, and\n\\frac{1}{2}.") == words("let x^2+1 = 0 and \\frac 1 2")


def test_a_shared_run_is_found_with_its_share_and_both_texts():
    prompts = [("t0", "an unrelated prompt"), ("t1", f"Suppose {LONG}. How far?")]
    (found,) = overlaps(prompts, {"b": [("q", LONG.upper()), ("r", "nothing of the kind")]}, n=8)
    assert found == Overlap(
        benchmark="b",
        problem_id="q",
        prompt_id="t1",
        band=Band.MOST,
        share=1.0,
        problem=LONG.upper(),
        prompt=f"Suppose {LONG}. How far?",
    )
    half = overlaps(prompts, {"b": [("q", "a train leaves the station at noon and then it waits")]}, n=8)
    assert [(item.share, item.band) for item in half] == [(pytest.approx(1 / 4), Band.LITTLE)]


def test_a_problem_shorter_than_the_run_counts_only_word_by_word():
    assert overlaps([("t", "What is 1+1 today?")], {"b": [("q", "What is 1+1?")]}, n=13) == []
    (found,) = overlaps([("t", "what is 1 + 1")], {"b": [("q", "What is $1+1$?")]}, n=13)
    assert found.band is Band.EQUAL
    assert overlaps([("t", "what is 1 - 1")], {"b": [("q", "What is $1+1$?")]}, n=13) == []


def test_letters_of_every_alphabet_are_words():
    assert words("Où est Δ?") == ["où", "est", "δ"]


@pytest.mark.parametrize(
    ("share", "band"),
    [(0.001, "0-0.3"), (0.29, "0-0.3"), (0.3, "0.3-0.5"), (0.49, "0.3-0.5"), (0.5, "0.5-1"), (1, "0.5-1")],
)
def test_a_band_has_its_lower_end(share, band):
    assert band_of(share) == band


# Runs of 2 words of a problem of 11 are 10, so that a prompt of its first k words has (k - 1) / 10 of them.
PROBLEM = "a b c d e f g h i j k"


def cut(count):
    return " ".join(PROBLEM.split()[:count])


def test_every_problem_is_in_one_band_with_its_nearest_prompt():
    other = PROBLEM.upper().replace(" ", " z")  # shares no run with the rest
    problems = {"one": [("q", PROBLEM), ("r", other), ("s", "x")], "two": [("q", f"{cut(7)} u v w x y z"), ("t", "u")]}
    prompts = [("3", cut(4)), ("7", cut(7))]
    found = overlaps(prompts, problems, n=2)
    assert [(item.benchmark, item.problem_id, item.share, item.band) for item in found] == [
        ("one", "q", 0.6, Band.MOST),
        ("two", "q", 0.5, Band.MOST),
    ]
    less = overlaps(prompts[:1], problems, n=2)
    assert [(item.share, item.band) for item in less] == [(0.3, Band.SOME), (0.25, Band.LITTLE)]


@given(st.lists(st.sampled_from("a b c d".split()), min_size=1, max_size=12), st.integers(1, 6))
def test_a_text_always_overlaps_with_itself(tokens, n):
    text = " ".join(tokens)
    (found,) = overlaps([("t", text)], {"b": [("q", text)]}, n=n)
    assert found.band is Band.EQUAL
    assert found.share == 1.0


def test_amc23_stands_whole_in_amc83(shared):
    sets = {
        name: [(row["id"], row["problem"]) for row in map(json.loads, (shared / "benchmarks" / f"{name}.jsonl").open())]
        for name in ("amc23", "amc83")
    }
    found = overlaps(sets["amc23"], {"amc83": sets["amc83"]})
    assert (len(sets["amc83"]), sum(item.band is Band.EQUAL for item in found)) == (83, 40)
    assert len({item.problem_id for item in found}) == len(found)


def test_prompts_are_not_kept_but_for_the_nearest():
    """4,000 prompts are 1 MB of text, and their runs of words many times that."""
    prompts = ((str(place), f"{PROBLEM} and {place} things more " * 5) for place in range(4_000))
    tracemalloc.start()
    (found,) = overlaps(prompts, {"b": [("q", PROBLEM)]}, n=4)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found.prompt_id, found.share) == ("0", 1.0)
    assert peak < 150_000
