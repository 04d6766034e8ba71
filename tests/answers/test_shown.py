"""What is read is shown: the words of an answer in its response, and the kind whose answers agree most."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.answers import parse_kind
from restrain_openrlhf.answers.shown import Responses, Sample, marked, place

PARIS = {"problem": "What is the capital of France?", "options": ["Lyon", "Paris"]}
AGREED = parse_kind({"name": "text", "read": "agreed"})


@pytest.mark.parametrize(
    ("kind", "response", "shown"),
    [
        ("math", "\\boxed{5}. Check: 5 + 0 = 5.", "\\boxed{«5»}. Check: 5 + 0 = 5."),
        ("math", "<think>5 or 6?</think>It is 6.", "<think>5 or 6?</think>It is «6»."),
        ("math", "1.  First\n2. The answer is 1.", "1. First 2. The answer is «1»."),
        ("number", "The result is thirty-six.", "The result is «thirty-six»."),
        ("number", "36 pens, as 6 x 6 = 36.", "36 pens, as 6 x 6 = «36»."),
        ("choice", "The answer is (B).", "The answer is «(B)»."),
        ("choice", "The capital of France is Paris.", "The capital of France is «Paris»."),
        ("text", "<answer>Nice</answer> Nice is nice.", "<answer>«Nice»</answer> Nice is nice."),
        ("json", 'Here: {"a": 1}', 'Here: «{"a": 1}»'),
        ("number", "I do not know.", "I do not know."),
        ("text", "x" * 99 + "\nAnswer: Nice\n" + "y" * 40, f"…{'x' * 71} Answer: «Nice» {'y' * 29}…"),
    ],
)  # fmt: skip
def test_the_words_that_were_read_are_marked(kind, response, shown):
    """Of several places, that one without which another answer would be read."""
    kind = parse_kind({"name": kind})
    assert marked(response, place(kind, response, kind.extract(response, PARIS), PARIS)) == shown


@given(st.text(alphabet="Paris is\n 36.,()B<>/think", max_size=40))
def test_a_place_has_the_answer_or_words_with_its_key(text):
    for kind in map(parse_kind, ({"name": "number"}, {"name": "choice"}, {"name": "text"}, {"name": "math"})):
        answer = kind.extract(text, PARIS)
        at = place(kind, text, answer, PARIS)
        words = None if at is None else text[slice(*at)]
        assert words in (None, answer) or kind.key(words, PARIS) == kind.key(answer, PARIS)


def test_the_kind_whose_answers_agree_most_is_named_with_its_shares_of_the_same_rollouts():
    """Two groups of four: agreed reads 7 of 8 (one is cut off), of which Paris and Paris, Bonn and Bonn agree."""
    sample = Sample()
    for city, country in (("Paris", "France"), ("Bonn", "Bonnland")):
        texts = [f"{city} it is.", f"The capital of {country} would be {city}, a city.", "We wonder.", None]
        sample.add(
            Responses((*texts[:3], None if city == "Paris" else "Do you?"), {"problem": f"Capital of {country}?"})
        )
    sample.add(Responses((), {}))
    best, *others = sample.compared(parse_kind({"name": "number"}))
    assert (best.kind, best.read, best.agreeing) == ("text, read: agreed", 7 / 8, 4 / 8)
    assert {each.kind: each.read for each in others} == {"text": 7 / 8, "math": 0.0, "number": 0.0, "choice": 0.0}
    first = sample.shown(AGREED)[0]
    assert (first.problem, first.answer, first.rollouts) == ("Capital of France?", "Paris", 2)
    assert first.response == "«Paris» it is."
    assert sample.compared(parse_kind({"name": "json"})) == []


def test_a_sample_is_spread_over_all_groups():
    sample = Sample()
    for number in range(1000):
        sample.add(Responses((f"The answer is {number}.",), {"problem": str(number)}))
    numbers = [int(group.row["problem"]) for group in sample.groups]
    assert (len(numbers) > 25, numbers[0], numbers[-1] > 900) == (True, 0, True)
    assert len({after - before for before, after in pairwise(numbers)}) == 1
