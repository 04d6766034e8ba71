"""From the client's query to a response: the prompt is taken off, and truncation is seen by the missing end token."""

import pytest

from restrain_openrlhf.errors import DataError
from restrain_openrlhf.scoring.service.get_reward import read_response
from restrain_openrlhf.scoring.wire import GroupResponse

ENDS = ("<|im_end|>", "<|box|>")


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (r"so \boxed{34}<|im_end|>", GroupResponse(text=r"so \boxed{34}", finished=True)),
        (r"so \boxed{34} and", GroupResponse(text=r"so \boxed{34} and", finished=False)),
        (r"so \boxed{3<|box|>4}<|im_end|>", GroupResponse(text=r"so \boxed{34}", finished=True)),
        ("", GroupResponse(text="", finished=False)),
    ],
)
def test_the_text_is_the_responses_own(response, expected):
    assert read_response(r"Put it in \boxed{}. " + response, r"Put it in \boxed{}. ", ENDS) == expected


def test_without_known_ends_nothing_counts_as_truncated():
    assert read_response("p3 and", "p", ()) == GroupResponse(text="3 and", finished=True)


def test_a_prompt_whose_beginning_was_cut_is_found_by_its_end():
    prompt = r"\boxed{1}" * 100 + " what is 1+1?"
    assert read_response(prompt[300:] + " 2", prompt, ()).text == " 2"


@pytest.mark.parametrize(("query", "prompt"), [("other text", "prompt"), ("", "p")])
def test_a_query_without_its_prompt_is_refused(query, prompt):
    with pytest.raises(DataError, match="does not begin with its prompt"):
        read_response(query, prompt, ENDS)
