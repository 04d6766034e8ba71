"""Short texts: what is read where, SQuAD's rules against the data set's own script, and aliases."""

import re
import string

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from restrain_openrlhf.answers.kind import parse_kind
from tests.answers.kinds.shapes import is_equivalence_whatever_the_order, keys_are_classes

TEXT = parse_kind({"name": "text"})
CAPITAL = "What is the capital of France?"
ANSWERS = [*"Paris|paris.|The Paris|London|J. K. Rowling|JK Rowling|1.5|15|C++|C|the|!".split("|"), None]
# As the Hub has them: mandarjoshi/trivia_qa and rajpurkar/squad, gold's texts put in `aliases`.
TRIVIA = {
    "value": "Sunset Boulevard",
    "aliases": ["Sunset Blvd", "West Sunset Boulevard", "Sunset Boulevard", "Sunset Bl."],
}
SQUAD = {"text": ["Denver Broncos", "Denver Broncos", "The Denver Broncos"], "answer_start": [177, 177, 173]}


def squad_normalized(text):
    """`normalize_answer` of SQuAD's evaluate-v2.0.py, step by step as it is written there."""
    text = text.lower()
    text = "".join(each for each in text if each not in set(string.punctuation))
    text = re.sub(re.compile(r"\b(a|an|the)\b", re.UNICODE), " ", text)
    return " ".join(text.split())


enclosed_words = st.tuples(
    st.sampled_from(["", '"', "'", "("]),
    st.sampled_from(["the", "A", "cat", "Cat"]),
    st.sampled_from(["", ",", ".", "!", "?)"]),
)


@settings(max_examples=500)
@given(st.lists(st.lists(enclosed_words.map("".join), max_size=3).map(" ".join), min_size=2, max_size=2))
def test_words_are_equal_where_squads_own_script_says_so(pair):
    one, other = map(squad_normalized, pair)
    assume(one and other)
    first, second = TEXT.classes(pair, {})
    assert (first == second) is (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("yes", "Yes"), ("J. K. Rowling", "J.K. Rowling"), ("Zürich", "Zu\u0308rich"), ("ﬁne", "fine"), ("１２", "12"),
     ("March 1, 2024", "march 1 2024"), ("“Paris”", "Paris"), ("a\n b", "B"), ("U.S.A.", "USA"), ("12,345", "12345"),
     ("Straße", "STRASSE"), ("rock ’n’ roll", "rock 'n' roll"), ("5 %", "5%."), ("The Who", "who"),
     ("\u22125", "-5"), ("–5", "-5"), ("2019–2020", "2019-2020"), ("10⁶", "10^6"),
     ("A\u2212", "a-"), ("AB+.", "AB+"), ("well-known", "well known"), ("twenty-one", "twenty one"), ("½", "1/2"),
     ("٢٤", "24"), ("(yes)", "Yes!"), ("Paris — France", "Paris, France"), ("$5", "$5."), ("<Paris>", "Paris"),
     ("Paris -", "Paris")],
)  # fmt: skip
def test_the_same_words(one, other):
    assert TEXT.classes([one, other], {}) == [0, 0]


@pytest.mark.parametrize(
    ("one", "other"),
    [("1.5", "15"), ("-5", "5"), ("2024-03-01", "20240301"), ("3:45", "345"), ("1/2", "12"), ("C++", "C"), ("C#", "C"),
     ("Zürich", "Zurich"), ("no", "on"), ("a b", "ab"), ("the", "a"), ("!", "?"), ("+1", "1"), ("-.5", ".5"),
     ("A+", "A-"), ("A-", "A"), ("AB+", "AB-"), ("B+", "B-"), ("O+.", "O-."), ("x>y", "x<y"), ("x > y", "x < y"),
     ("x >= 5", "x <= 5"), ("x >= 5", "x > 5"), ("> 5", "< 5"), ("x = 5", "x != 5"), ("x + y", "x - y"), ("-x", "x"),
     (".5", "5"), ("10⁶", "106"), ("–5", "5"), ("p < .05", "p > .05"), ("!p", "p"), ("a/b", "ab"), ("a / b", "a b"),
     ("$5", "5"), ("5%", "5"), ("5%", "$5"), ("re-sign", "resign"), ("T-shirt", "Tshirt"), ("R&B", "RB"),
     ("f(x)", "fx"), ("@ann", "ann"), ("~p", "p"), ("/etc", "etc"), ("x = 5", "x 5"), ("snake_case", "snakecase"),
     ("A-1", "1"), ("2½", "21/2")],
)  # fmt: skip
def test_different_words(one, other):
    assert TEXT.classes([one, other], {}) == [0, 1]


SWITCHES = {
    "ignore_case": ("Paris", "PARIS"),
    "ignore_articles": ("the end", "end"),
    "ignore_punctuation": ("end!", "end"),
}


@pytest.mark.parametrize("setting", SWITCHES)
def test_each_rule_is_a_setting(setting):
    assert TEXT.classes(SWITCHES[setting], {}) == [0, 0]
    assert parse_kind({"name": "text", setting: False}).classes(SWITCHES[setting], {}) == [0, 1]
    others = {name: False for name in SWITCHES if name != setting}
    assert parse_kind({"name": "text", **others}).classes(SWITCHES[setting], {}) == [0, 0]


RESPONSE = "Reasons.\n<answer>tag</answer>\nThe answer is \\boxed{box}.\nAnswer: marked\nSentiment: **good**\nlast line"


@pytest.mark.parametrize(
    ("block", "answer"),
    [({}, "tag"), ({"read": "tag"}, "tag"), ({"read": "tag", "tag": "final"}, None), ({"read": "marker"}, "marked"),
     ({"read": "marker", "marker": "Sentiment:"}, "good"), ({"read": "marker", "marker": "Mood:"}, None),
     ({"read": "last_line"}, "last line")],
)  # fmt: skip
def test_where_the_answer_stands_is_a_setting(block, answer):
    assert parse_kind({"name": "text", **block}).extract(RESPONSE, {}) == answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [("<answer>\nline one\nline two\n</answer>", "line one\nline two"), ("```\nParis\n```", "Paris"),
     ("x" * 2001, None),
     ("<answer>```text\nParis\n```</answer>", "Paris"), ("> Paris", "Paris"), ("", None), ("```\n```", None),
     ("<think>Paris</think>\nLondon<|im_end|>", "London"), ("<answer>a</answer> or <answer>b</answer>", "b"),
     ("The answer to the question is **Paris**.", "Paris"), ("Answer: Dr. No", "Dr. No"), ("Answer: No. 5", "No. 5"),
     ("Answer: No. The rest follows.", "No"), ("Overall, the sentiment is positive.", "positive"),
     ("x" * 2000, "x" * 2000),
     ("What is love", "What is love"), ("<answer>open", "<answer>open"), ("The answer is:\n\nParis\n", "Paris")],
)  # fmt: skip
def test_what_is_read(response, answer):
    assert TEXT.extract(response, {}) == answer


@pytest.mark.parametrize(
    ("question", "response", "answer"),
    [(CAPITAL, "Paris is the capital.", "Paris"), (CAPITAL, "The capital of France is Paris.", "Paris"),
     (CAPITAL, "The capital is called Paris – a city of light.", "Paris"),
     (CAPITAL, "Capital: Paris", "Capital: Paris"),
     (CAPITAL, "The capital of France is Paris. The city is old.", "Paris"), (CAPITAL, "It is Paris.", "Paris"),
     (CAPITAL, "The capital of France is Washington, D.C.", "Washington, D.C."),
     (CAPITAL, "The capital is red, white and blue.", "red, white and blue"),
     (CAPITAL, "Lyon is not the capital.", "Lyon is not the capital."),
     (CAPITAL, "France is France.", "France is France."),
     ("In which continent is Peru?", "Peru is located in South America.", "South America"),
     ("Positive or negative: I loved it.", "The film is positive.", "positive"),
     ("Positive or negative: I loved it.", "It is positive.", "positive"),
     ("Translate: Der Hund ist groß.", "Dogs are big", "Dogs are big")],
)  # fmt: skip
def test_a_sentence_is_read_where_the_questions_word_stood(question, response, answer):
    assert TEXT.extract(response, {"problem": question}) == answer


def test_aliases_are_right_and_merge_no_votes():
    """They are gold's: in a vote, only spellings of the right answer would be added up."""
    row = {"aliases": TRIVIA["aliases"]}
    assert TEXT.classes(["sunset blvd", "Sunset Boulevard", "Hollywood", "SUNSET BLVD."], row) == [0, 1, 2, 0]
    assert all(TEXT.is_right(alias, TRIVIA["value"], row) for alias in TRIVIA["aliases"])
    assert not TEXT.is_right("Sunset", TRIVIA["value"], row)
    assert TEXT.is_right("Gold", "gold", {"aliases": ["Au"]})
    assert TEXT.is_right("the denver broncos", SQUAD["text"][0], {"aliases": SQUAD["text"]})
    assert not TEXT.is_right(None, "x", {})


@given(st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=5), st.sampled_from([None, ["Paris", "C"]]))
def test_being_the_same_text_is_an_equivalence(answers, aliases):
    is_equivalence_whatever_the_order(TEXT, {"aliases": aliases}, answers)
    keys_are_classes(TEXT, {"aliases": aliases}, [answer for answer in answers if answer])
