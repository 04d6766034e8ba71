"""Free text by agreement: groups worked by hand, what stays apart, order, renaming, and the same votes everywhere."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.answers import GroupAnswers, parse_kind
from restrain_openrlhf.commands.score import score_row
from restrain_openrlhf.data.problems import Problem
from restrain_openrlhf.evaluation.grade import ResponseRow, RolloutsRow
from restrain_openrlhf.evaluation.result import _graded
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.reference import ReferenceRow
from restrain_openrlhf.reference.offline_engine import Rollout
from restrain_openrlhf.reference.prompts import Prompt
from restrain_openrlhf.scoring import GroupScorer, score_whole_group
from restrain_openrlhf.scoring.wire import GroupRequest, GroupResponse
from tests.answers.kinds.shapes import ATOMS

AGREED, TEXT = parse_kind({"name": "text", "read": "agreed"}), parse_kind({"name": "text"})
FRANCE = "What is the capital of France? Answer in one short sentence."
SAID = (
    "The capital of France is Paris.",
    "Paris, a city of light, is the capital.",
    "France's capital is sunny: Paris!",
    "It has two airports, and is called Paris.",
    "In France, the capital is Lyon.",
    "Lyon",
)


def read(question, *responses):
    return AGREED.read_together(responses, {"problem": question})


@pytest.mark.parametrize(
    ("question", "responses", "answers"),
    [
        (FRANCE, SAID, ["Paris"] * 4 + ["Lyon"] * 2),
        # Who states an answer in a form means that one.
        (FRANCE, ["<answer>Lyon</answer> is no Paris", "Answer: Paris", "Paris it is"], ["Lyon", "Paris", "Paris"]),
        (FRANCE, ["<think>Lyon? Lyon!</think>Paris.", "It is Paris.", "<think>Paris"], ["Paris", "Paris", None]),
        # A response that agrees with none is read alone.
        (FRANCE, ["The capital of France is Nice, a city."], ["Nice"]),
        (FRANCE, ["", "Paris.", "Paris, Texas?"], [None, "Paris", "Paris"]),
        ("What is the capital of Mexico?", ["Mexico City is the capital of Mexico.", "It is Mexico City."],
         ["Mexico City"] * 2),
        ("Is Paris in France?", ["Yes, Paris is in France.", "Yes it is", "No, it is not.", "No."],
         ["Yes", "Yes", "No", "No"]),
        ("Which is bigger, the sun or the moon?", ["The sun is bigger.", "Sun!", "The moon is bigger than the sun.",
                                                  "The moon."], ["sun", "sun", "sun", "moon"]),
        ("What are the colours?", ["The colours are blue, white and red.", "Blue, white, and red.", "Blue and red.",
                                   "They are blue and red"], ["blue, white and red"] * 2 + ["Blue and red"] * 2),
        # A list is the set of its items, unless the question asks for an order.
        ("What are the colours?", ["red, green and blue", "The colours are blue, red, and green.", "red and green"],
         ["red, green and blue"] * 2 + ["red and green"]),
        ("Order them by size.", ["red, green and blue", "Red, green, and blue", "blue, red, and green"],
         ["red, green and blue"] * 2 + ["blue, red, and green"]),
        # The answer to a question for yes or no is the first word, whatever else most share.
        ("Is it a star? Yes or no?", ["Yes, it makes light.", "Yes, of gas, so it makes light.", "No, it makes light.",
                                      "Light", "<answer>No, light.</answer>"],
         ["Yes", "Yes", "No", "Light", "No"]),
        ("Is it red or blue?", ["No, red.", "Red"], ["Red"] * 2),
        ("Is it big?", ["No, it is not big."], ["No"]),
        ("เมืองหลวงของฝรั่งเศสคืออะไร", ["เมืองหลวงของฝรั่งเศสคือปารีส", "ปารีสเป็นเมืองหลวงของฝรั่งเศส", "ปารีส", "ลียง"],
         ["ปารีส"] * 3 + ["ลียง"]),
        ("How long is it?", ["It is 12 km long.", "12 km", "About 15 km long.", "15 km."],
         ["12 km"] * 2 + ["15 km"] * 2),
        ("Who wrote the book?", ["J. R. R. Tolkien wrote it.", "The author is J.R.R. Tolkien."],
         ["J.R.R. Tolkien"] * 2),
        ("What is the opposite of hot?", ["It isn't warm. Cold.", "Cold, not warm.", "warm"], ["Cold", "Cold", "warm"]),
        ("日本の首都はどこですか？", ["日本の首都は東京です。", "東京が首都です", "大阪です。", "大阪"],
         ["東京", "東京", "大阪", "大阪"]),
        ("法国的首都是什么？", ["法国的首都是巴黎。", "巴黎是法国的首都。", "里昂", "里昂。"],
         ["巴黎", "巴黎", "里昂", "里昂"]),
        ("スペインの首都は？", ["スペインの首都はマドリードです。", "マドリード"], ["マドリード"] * 2),
        ("Was ist die Hauptstadt von Frankreich?", ["Die Hauptstadt von Frankreich ist Paris.",
                                                    "Paris ist die Hauptstadt."], ["Paris"] * 2),
    ],
)  # fmt: skip
def test_groups_worked_by_hand(question, responses, answers):
    assert read(question, *responses) == answers


@pytest.mark.parametrize(
    ("one", "other"),
    [("York", "New York"), ("Delhi", "New Delhi"), ("Kyiv", "Kiev"), ("Zürich", "Zurich"), ("12 km", "15 km"),
     ("12 km", "12 miles"), ("12", "12 km"), ("light blue", "dark blue"), ("blue", "light blue"), ("1.5", "15"),
     ("South America", "North America"), ("The Lord of the Rings", "The Lord of the Flies"), ("-5", "5"), ("5%", "5"),
     ("Gone with the Wind", "The Wind in the Willows"), ("red and blue", "red and green"), ("red", "red and green"),
     ("University of Oxford", "University of York"), ("St. Paul", "St. Peter"),
     ("東京", "京都"), ("$5", "5"), ("Pride and Prejudice", "Pride")],
)  # fmt: skip
def test_what_shares_a_word_stays_apart(one, other):
    forms = ("It is {}.", "The answer would be {}, of course.", "{}")
    responses = [form.format(name) for name in (one, other) for form in forms]
    row = {"problem": "What is it?"}
    found = AGREED.classes(AGREED.read_together(responses, row), row)
    assert set(found[:3]).isdisjoint(found[3:])
    assert (found[0], found[3]) == (found[2], found[5])


FORMS = ("The capital of France is {}.", "{} is the capital.", "It's {}, a city.", "{}", "<answer>{}</answer>", "None!")
groups = st.lists(
    st.builds(str.format, st.sampled_from(FORMS), st.sampled_from(["Paris", "Lyon", "New Lyon", "Nice"])), max_size=8
)


@given(groups, st.randoms())
def test_the_order_changes_no_answer_and_a_new_name_no_class(responses, random):
    found = dict(zip(responses, read(FRANCE, *responses), strict=True))
    moved = random.sample(responses, len(responses))
    assert read(FRANCE, *moved) == [found[response] for response in moved]
    renamed = list(responses)
    for old, new in (("Paris", "Xanadu"), ("Nice", "Atlantis"), ("Lyon", "Utopia")):
        renamed = [response.replace(old, new) for response in renamed]
    row = {"problem": FRANCE}
    assert AGREED.classes(read(FRANCE, *renamed), row) == AGREED.classes(read(FRANCE, *responses), row)


def test_every_way_to_the_votes_reads_the_group_together():
    row, cut = {"problem": FRANCE}, [False] * 5 + [True]
    expected = ("Paris",) * 4 + ("Lyon", None)
    rollouts = [Rollout(text, 9, is_cut) for text, is_cut in zip(SAID, cut, strict=True)]
    frozen = ReferenceRow.of(AGREED, Prompt("1", FRANCE, FRANCE, "row 1"), rollouts)
    assert (frozen.answers, frozen.counts) == (expected, (4, 1))
    method = build(parse_settings({"name": "ttrl"}))
    group = tuple(GroupResponse(text=text, finished=not is_cut) for text, is_cut in zip(SAID, cut, strict=True))
    online = score_whole_group(GroupScorer(method, kind=AGREED), GroupRequest(prompt=FRANCE, responses=group))
    file = RolloutsRow(id="1", problem=FRANCE, responses=SAID, truncated=cut)
    mixed = parse_kind({"name": "mixed", "default": "text", "kinds": {"text": {"read": "agreed"}}})
    assert online.answers == expected == tuple(score_row(file, method, kind=AGREED).answers)
    assert tuple(mixed.voted_answers(SAID, cut, row)) == expected
    # Evaluation also reads what was cut off.
    sampled = ResponseRow(id="1", problem=FRANCE, prompt=FRANCE, responses=SAID, tokens=(9,) * 6, truncated=cut)
    graded = _graded(sampled, Problem(id="1", problem=FRANCE, answer="Paris"), AGREED)
    assert graded.answers == ("Paris",) * 4 + ("Lyon",) * 2
    assert graded.correct == (True,) * 4 + (False,) * 2
    assert graded.group.majority == "Paris"


def test_where_an_answer_is_a_sentence_text_does_not_agree_unless_asked():
    said = ["Der Hund schläft im Garten.", "Die Katze schläft im Garten."]
    row = {"problem": "Translate: The dog is asleep in the garden."}
    assert GroupAnswers.of(TEXT, TEXT.read_together(said, row), row).votes.counts == (1, 1)


@pytest.mark.parametrize("atom", ATOMS)
def test_hostile_text_takes_fewer_steps_than_it_has_characters(atom):
    """The calls of functions are counted, in Python and in C."""
    calls, response = 0, atom * (1_000_000 // len(atom))

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        read(FRANCE, response)
    finally:
        sys.setprofile(None)
    assert calls < len(response)
