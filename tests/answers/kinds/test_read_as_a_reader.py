"""Real responses are read as a careful reader reads them: 492 of SmolLM2-135M-Instruct, each labelled by hand.

`smollm2_responses.jsonl` has the responses at temperatures .7 and 1, with and without an instruction on form, and the
one answer that each states, or null (none, two, or cut off before it). A letter counts where its text contradicts it.
`unclear` ones count nowhere. The third that `is_held_back` was labelled with the others and by the rule's author, so it
is no blind test: its totals were seen while the rule was written, and its responses only when they were labelled.
"""

import json
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest

from restrain_openrlhf.answers.kind import parse_kind

KINDS = {name: parse_kind({"name": name}) for name in ("number", "choice")}
RESPONSES = [json.loads(line) for line in Path(__file__).with_name("smollm2_responses.jsonl").open(encoding="utf-8")]


def is_held_back(response):
    return sha256((response["problem"] + response["response"]).encode()).digest()[0] % 3 == 0


def read(response):
    """The key of what is read, and of the label."""
    kind, row = KINDS[response["kind"]], {"problem": response["problem"]}
    if "options" in response:
        row["options"] = response["options"]
    answers = kind.extract(response["response"], row), response["label"]
    return [answer if answer is None else kind.key(answer, row) for answer in answers]


@pytest.mark.parametrize(
    ("kind", "held_back", "complete", "states", "right", "responses", "wrong"),
    [("number", False, False, 54, 50, 140, 17), ("number", True, False, 42, 37, 91, 14),
     ("number", False, True, 44, 42, 76, 4), ("number", True, True, 31, 31, 50, 4),
     ("choice", False, False, 100, 96, 157, 7), ("choice", True, False, 40, 35, 74, 2),
     ("choice", False, True, 86, 83, 116, 1), ("choice", True, True, 34, 32, 55, 2)],
)  # fmt: skip
def test_at_least_as_many_are_read_as_was_measured(kind, held_back, complete, states, right, responses, wrong):
    """Complete responses, which alone vote, and all."""
    found = Counter()
    for response in RESPONSES:
        of_part = response["kind"] == kind and is_held_back(response) is held_back
        if of_part and not response.get("unclear") and not (complete and response["truncated"]):
            got, label = read(response)
            found.update(responses=1, states=label is not None, right=got == label is not None)
            found.update(wrong=got not in (None, label))
    assert (found["states"], found["responses"]) == (states, responses)
    assert found["right"] >= right
    assert found["wrong"] <= wrong


ASKED = {"problem": "A box has 6 pens. How many pens are in 6 boxes?"}


@pytest.mark.parametrize(
    ("response", "row", "answer"),
    [("12 times 3 equals 36.", {"problem": "What is 12 times 3?"}, "36"), ("12 times 3 is 36.", {}, "36"),
     ("The product of 12 and 3 is 36.", {"problem": "What is 12 times 3?"}, "36"), ("25 times 5 is 125.", {}, "125"),
     ("The result is thirty-six.", {}, "36"), ("Answer: 6 x 6 = 36 pens are in 6 boxes.", ASKED, "36"),
     ("$33 + $23 = $59\nThe total price is $59\n\nThis is the total of both.", {}, "$59"),
     ("x=5 or x=6", {}, None), ("The answer is x=5 or x=6.", {}, None), ("x=5", {}, "5"),
     ("A box has 6 pens.", ASKED, None), ("There are 36 pens. Each box has 6 pens.", ASKED, "36"),
     ("36 pens in total since there are 12 in each.", ASKED, "36"), ("6", ASKED, "6"),
     ("You need 6 times 6.", ASKED, None), ("The number of pens is 6 times 6, which equals 36.", ASKED, "36"),
     ("Total - 36", {}, "36"), ("2x", {}, None), ("The answer is y_{2}=x e^{x}", {}, None)],
)  # fmt: skip
def test_the_answer_stands_where_the_questions_word_stood(response, row, answer):
    assert KINDS["number"].extract(response, row) == answer


HOT = "What is the opposite of hot?"
SPAIN = {"problem": "Which city is the capital of Spain?", "options": ["Lisbon", "Madrid", "Porto", "Seville"]}


@pytest.mark.parametrize(
    ("response", "options", "answer"),
    [("The capital city of France is called Paris.", ["Lyon", "Paris"], "Paris"),
     ("The opposite of hot is cold. The reason is that one has less heat.", ["cold", "big"], "cold"),
     ("A spider has eight legs.", ["six", "eight", "ten"], "eight"), ("The answer is 8.", ["six", "eight"], "eight"),
     ("The correct answer is indeed D) Fog.", ["ice", "rain", "dew", "Fog"], "Fog"),
     ("C) Tolstoy\nExplanation: Tolstoy wrote it, not Chekhov.", ["Pushkin", "Chekhov", "Tolstoy"], "Tolstoy"),
     ("A. Lyon\nB. Paris", ["Lyon", "Paris"], None), ("Options (A) and (B) are cities.", ["Lyon", "Paris"], None),
     ("There is no Paris.", ["Lyon", "Paris"], None), ("(A) is wrong.", ["Lyon", "Paris"], None),
     ("Lisbon is in Portugal. The capital of Spain is Madrid.", SPAIN["options"], "Madrid"),
     ("Madrid, Porto, and Seville are cities.", SPAIN["options"], None), ("No, it is not.", ["yes", "no"], "no")],
)  # fmt: skip
def test_the_option_that_a_sentence_names_is_read(response, options, answer):
    problem = HOT if "cold" in options else SPAIN["problem"]
    assert KINDS["choice"].extract(response, {"problem": problem, "options": options}) == answer
