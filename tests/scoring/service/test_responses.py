"""From the client's query to an answer: the prompt is taken off, and truncation is seen by the missing end token."""

import pytest

from restrain_openrlhf.answers import MATHEMATICS
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.scoring.service.get_reward import Response, read_response

ENDS = ("<|im_end|>", "<|box|>")


def read(query, prompt, ends):
    return read_response(query, prompt, ends, MATHEMATICS, {})


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (r"so \boxed{34}<|im_end|>", Response("34", truncated=False)),
        (r"so \boxed{34} and", Response("34", truncated=True)),
        (r"so \boxed{3<|box|>4}<|im_end|>", Response("34", truncated=False)),
        ("I give up<|im_end|>", Response(None, truncated=False)),
        ("", Response(None, truncated=True)),
    ],
)
def test_the_answer_is_the_responses_own(response, expected):
    assert read(r"Put it in \boxed{}. " + response, r"Put it in \boxed{}. ", ENDS) == expected


def test_without_known_ends_nothing_counts_as_truncated():
    assert read(r"p\boxed{3} and", "p", ()) == Response("3", truncated=False)


def test_a_prompt_whose_beginning_was_cut_is_found_by_its_end():
    prompt = r"\boxed{1}" * 100 + " what is 1+1?"
    assert read(prompt[300:] + r" \boxed{2}", prompt, ()).answer == "2"
    assert read(prompt[300:] + " none", prompt, ()).answer is None


@pytest.mark.parametrize(("query", "prompt"), [("other text", "prompt"), ("", "p")])
def test_a_query_without_its_prompt_is_refused(query, prompt):
    with pytest.raises(DataError, match="does not begin with its prompt"):
        read(query, prompt, ENDS)
