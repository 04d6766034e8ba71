"""A short text as the answer: a tag, an announcement, or the last line."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.answers.kinds.short_text import MAX_LENGTH, short_text


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ("I think so.\n<answer>\nthe  blue\nwhale\n</answer>\nDone.", "the blue whale"),
        ("<answer>a</answer> No: <answer>b</answer>", "b"),
        ("<answer>a</answer> or <answer>b", "a"),
        ("The answer is: Paris\nI am sure.", "Paris"),
        ("**Answer:** Paris", "Paris"),
        ("<answer>Paris</answer> This answer is sure.", "Paris"),
        ("Answer: A. Final answer: B", "B"),
        ("Answer:\nParis\nIt is in France.", "Paris"),
        ("It is large.\n\n**Paris**\n", "Paris"),
        ("<think>Answer: Rome</think>Paris", "Paris"),
        ("answering is hard\nyes", "yes"),
        ("a\ud800b", "a?b"),
        ("<answer></answer>", "<answer></answer>"),
        ("", None),
        (" \n\t", None),
        ("x" * (MAX_LENGTH + 1), None),
    ],
)
def test_the_text_that_is_read(response, text):
    assert short_text(response) == text


@given(st.text(st.characters()))
def test_any_text_is_read_as_one_line(text):
    found = short_text(text)
    assert found is None or (0 < len(found) <= MAX_LENGTH and found == " ".join(found.split(" ")) and "\n" not in found)


@pytest.mark.parametrize("piece", ["<answer>", "</answer>", "answer: ", "answer is", "*", " ", "\n", "answer:*"])
def test_a_megabyte_of_anything_is_read_within_a_second(piece):
    start = time.process_time()
    short_text(piece * ((1 << 20) // len(piece)))
    assert time.process_time() - start < 1
