"""Real responses are read as a careful reader reads them: 708 of SmolLM2-135M-Instruct, each labelled by hand.

`smollm2_responses.jsonl` has the responses at temperatures .7 and 1, with and without an instruction on form, and the
one answer that each states, or null (none, two, or cut off before it). A letter counts where its text contradicts it.
`unclear` ones count nowhere. The last 216 were sampled and labelled later, with other questions.
`written_responses.jsonl` has 129 that were written by hand. `heldout_responses.jsonl` has the complete ones of three
responses to each of 110 other questions, written and labelled by a reader who had seen neither code nor other labels.
The rules were written on these. `unseen_responses.jsonl` is a second file of that kind, of 120 questions: it measures
the rules, and its responses were not looked at. Do not improve them on those.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from restrain_openrlhf.answers.kind import parse_kind
from restrain_openrlhf.answers.numerals import in_digits

KINDS = {name: parse_kind({"name": name}) for name in ("number", "choice", "text")}
PARTS = {
    name: [json.loads(line) for line in Path(__file__).with_name(f"{name}_responses.jsonl").open(encoding="utf-8")]
    for name in ("smollm2", "written", "heldout", "unseen")
}
PARTS |= {"first": PARTS["smollm2"][:492], "later": PARTS["smollm2"][492:]}


def read(response):
    """The key of what is read, and of the label."""
    kind, row = KINDS[response["kind"]], {"problem": response["problem"]}
    if "options" in response:
        row["options"] = response["options"]
    answers = kind.extract(response["response"], row), response["label"]
    return [answer if answer is None else kind.key(answer, row) for answer in answers]


@pytest.mark.parametrize(
    ("part", "kind", "complete", "states", "right", "responses", "wrong"),
    [("first", "number", True, 75, 73, 126, 4), ("first", "number", False, 96, 90, 231, 29),
     ("first", "choice", True, 120, 118, 171, 3), ("first", "choice", False, 140, 137, 231, 9),
     ("later", "number", True, 52, 47, 78, 4), ("later", "number", False, 56, 51, 107, 12),
     ("later", "choice", True, 37, 36, 67, 1), ("later", "choice", False, 46, 43, 90, 4),
     ("written", "number", True, 53, 50, 66, 3), ("written", "choice", True, 50, 47, 63, 0),
     ("heldout", "number", True, 77, 69, 104, 6), ("heldout", "choice", True, 42, 40, 68, 4),
     ("heldout", "text", True, 29, 13, 33, 20),
     ("unseen", "number", True, 81, 70, 116, 11), ("unseen", "choice", True, 62, 53, 104, 8)],
)  # fmt: skip
def test_at_least_as_many_are_read_as_was_measured(part, kind, complete, states, right, responses, wrong):
    """Complete responses, which alone vote, and all."""
    found = Counter()
    for response in PARTS[part]:
        if response["kind"] == kind and not response.get("unclear") and not (complete and response["truncated"]):
            got, label = read(response)
            found.update(responses=1, states=label is not None, right=got == label is not None)
            found.update(wrong=got not in (None, label))
    assert (found["states"], found["responses"]) == (states, responses)
    assert found["right"] >= right
    assert found["wrong"] <= wrong


CAKE = {"problem": "A cake is cut into 8 slices and 3 are eaten. How many slices remain?"}
WAR = {"problem": "In what year did the war begin?"}
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
     ("Total - 36", {}, "36"), ("2x", {}, None), ("The answer is y_{2}=x e^{x}", {}, None),
     ("There are 3 slices of cake left.", CAKE, "3"), ("So we have 36 pens in 6 boxes.", ASKED, "36"),
     ("We need 36 pens (12 in total).", ASKED, "36"),
     ("Pens are in 6 boxes of 4 rows, 3 deep.", ASKED, None), ("A box has 6 pens. You need 6 times 5 = ", ASKED, None),
     # Many complete responses end without a full stop; one that was cut off has no vote.
     ("There are 6 boxes. Each has 6 pens. So there are 36 pens", ASKED, "36"), ("36 in all - 36.", ASKED, "36"),
     ("A box has 6 pens. The total is 36", ASKED, "36"), ("Rows have 6 pens. Boxes have 36", ASKED, "36"),
     ("A box costs 3, and the pens are 4.", ASKED, None), ("The pens are 10, which is 12 x 3 = 36.", ASKED, "36"),
     ("The answer is a story. Here are 25 of it.", ASKED, None), ("It is equivalent to 36.", ASKED, "36"),
     ("The war began on July 28, 1914.", WAR, "1914"), ("It began on 28 July 1914.", WAR, "1914"),
     ("The pens are in the boxes. 36 pens is right.", ASKED, "36"), ("Answer: 3 boxes are 36", {}, "36"),
     ("The answer is 36 because 3 x 4 = 12.", {}, "36"),
     ("9 squared equals 9 times 9, or 81.", {"problem": "What is 9 squared?"}, "81"),
     # Beside the noun that the question counts, whatever other nouns are counted.
     ("The 6 boxes hold 36 pens and 12 caps.", ASKED, "36"), ("There are thirty-six pens: blue ones.", ASKED, "36"),
     ("The boxes hold 36 pens, while a crate holds 40 pens.", ASKED, "36"), ("There are 30-36 pens.", ASKED, None),
     ("Of 8 slices, 3 slices are left.", CAKE, "3"),
     ("There are 7 million pens in 6 boxes.", ASKED, "7 million"),
     ("There are 30 pens or 36 pens.", ASKED, None), ("There are √36 pens.", ASKED, None),
     ("It took 6 hours and 24 minutes.", {"problem": "How many hours did it take?"}, None),
     ("The war began on April 15, 1912, with 1,500 people.", WAR, "1912"), ("There are 36 blue pens.", ASKED, "36"),
     # What one has is not what several have, unless the question asks for one.
     ("One box has 7 pens.", ASKED, None),
     ("One box has 7 pens.", {"problem": "Here is 1 box. How many pens are in it?"}, "7"),
     ("As one of them, I have 7.", {"problem": "6 of us have how many?"}, "7"),
     ("One box has 7 pens.", {"problem": "There are 14 pens in 2 boxes. How many pens are in each box?"}, "7")],
)  # fmt: skip
def test_the_answer_stands_where_the_questions_word_stood(response, row, answer):
    assert KINDS["number"].extract(response, row) == answer


def test_words_after_a_digit_are_its_scale_and_no_number():
    assert in_digits("1.5 million, two and 3  thousand") == "1.5 million, 2 and 3  thousand"


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
     ("Madrid, Porto, and Seville are cities.", SPAIN["options"], None), ("No, it is not.", ["yes", "no"], "no"),
     ("B) Madrid\n\nSelect from:\nA) Lisbon\nC) Porto\nD) Seville", SPAIN["options"], "Madrid"),
     ("B) Madrid\n\n1. It is big.\n\n2. It is old.", SPAIN["options"], "Madrid"),
     ('In short, "B" is the correct answer here.', SPAIN["options"], "Madrid"),
     ("The capital is Lisbon, but if you like, the capital is Porto.", SPAIN["options"], None),
     ("Animals are cows and sheep, as the capital of Spain.", ["cow", "sheep"], None),
     ("Porto is not the capital of Spain.", SPAIN["options"], None),
     ("The capital of Spain, not of Lisbon, is a hat, and a scarf.", ["a hat", "a scarf"], None),
     ("A: I have no capital of Spain to name.", SPAIN["options"], None),
     ("Therefore, B) the capital of Spain is old.", SPAIN["options"], "Madrid"),
     ("So, A) Lisbon and B) Madrid are cities.", SPAIN["options"], None),
     ("The letter is B.", SPAIN["options"], "Madrid"), ("Porto is old. It is big.", SPAIN["options"], None),
     ("The capital is B.", SPAIN["options"], "Madrid"), ("The capital is not B.", SPAIN["options"], None),
     ("I as a model say Madrid.", SPAIN["options"], "Madrid"), ("b is the first letter.", ["c", "b"], "b"),
     ("It is the sea or sky.", ["the sea or the sky", "land"], "the sea or the sky")],
)  # fmt: skip
def test_the_option_that_a_sentence_names_is_read(response, options, answer):
    problem = HOT if "cold" in options else SPAIN["problem"]
    assert KINDS["choice"].extract(response, {"problem": problem, "options": options}) == answer


@pytest.mark.parametrize(
    ("response", "question", "answer"),
    [("A whale is a mammal, not a fish.", "Is a whale a mammal?", "Yes"), ("It swims.", "Is a whale a mammal?", None),
     ("A whale is not a mammal.", "Is a whale a mammal?", "No"), ("Is a whale a mammal? Who knows.", "", None),
     ("A whale isn't a mammal.", "Is a whale not a mammal?", None),
     ("Is a whale a mammal? I am not sure.", "Is a whale a mammal?", None)],
)  # fmt: skip
def test_yes_and_no_are_read_from_a_sentence_that_affirms_or_denies_the_question(response, question, answer):
    row = {"problem": f"{question}\nA) Yes\nB) No", "options": ["Yes", "No"]}
    assert KINDS["choice"].extract(response, row) == answer


def test_without_options_a_letter_before_a_colon_is_the_answer():
    assert KINDS["choice"].extract("A: it is the right one.", {"problem": "Which one is right?"}) == "A"
