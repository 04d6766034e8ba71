"""Multiple choice: the option is read in every form, in any order of the options; gold in every data set's form."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from restrain_openrlhf.answers.kind import parse_kind
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.reference.prompts import PromptSource, load_prompts
from tests.answers.kinds.shapes import is_equivalence_whatever_the_order, keys_are_classes

CHOICE = parse_kind({"name": "choice"})
WORDS = (
    "Lyon|the lungs|$\\frac{1}{2}$|42|none of the above|Both A and B|Escherichia coli|1.5 km|Paris|Paris, Texas|IV"
    "|A dog|It depends.|mg|Mg|x^2|New York|York|0|-3"
).split("|")
# How a response states an option, by its letter and by its text.
BY_LETTER = r"""
({0})
{0}
{0}.
**{0}**
\boxed{{{0}}}
$\boxed{{\text{{{0}}}}}$
The answer is {0}.
The answer is ({0}) because it is.
Reasons.↵↵Answer: {0}
**Final Answer:** **{0}**
#### {0}
<answer>{0}</answer>
<answer>\boxed{{{0}}}</answer>
A dog is wrong.↵So the correct option is {0}.
{0}) {1}
{0}. {1}
The answer is {0}) {1}
**{0}. {1}**
Option {0}: {1}
The answer is {0}: {1}.
<think>\boxed{{Z}}</think>↵The answer is {0}.<|im_end|>
{0} is correct because of this.
Answer: {0} - {1}
Answer: {0} – {1}
The answer is {0} ({1}).
Reasons.↵**{0}** - {1}
**{0}.** {1}
**{0})** {1}
**{0}**: {1}
"""
BY_LETTER = [form.replace("↵", "\n") for form in BY_LETTER.strip().split("\n")]
BY_TEXT = ("\\boxed{{{1}}}", "<answer>{1}</answer>", "The answer is {1}", "Answer:\n{1}", "{1}", "**{1}**")
# As the Hub has them: TIGER-Lab/MMLU-Pro, cais/mmlu, and Idavidrein/gpqa with its four answers in one shuffled list.
MMLU_PRO = {
    "answer": "I",
    "options": ["Safe", "Unsafe", "Fear", "Trust", "Small", "Large", "Slow", "Quick", "Fair", "N/A"],
    "answer_index": 8,
}
MMLU = {"question": "Find the degree.", "subject": "abstract_algebra", "choices": ["0", "4", "2", "6"], "answer": 1}
GPQA = {
    "Question": "How long?",
    "Correct Answer": "10^-4 eV\n",
    "Incorrect Answer 1": "10^-11 eV\n",
    "Incorrect Answer 2": "10^-8 eV\n",
    "Incorrect Answer 3": "10^-9 eV",
    "Subdomain": "Physics",
}
ARC = {"question": "Which?", "choices": {"text": ["ice", "steam"], "label": ["1", "2"]}, "answerKey": "2"}


def letter(place):
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[place]


@settings(max_examples=300)
@given(st.lists(st.sampled_from(WORDS), min_size=2, max_size=12, unique=True), st.data())
def test_a_letter_votes_for_its_options_text(options, data):
    place = data.draw(st.integers(0, len(options) - 1))
    form = data.draw(st.sampled_from(BY_LETTER))
    response = form.format(letter(place), options[place])
    assert CHOICE.extract(response, {"options": options}) == options[place], response
    assert CHOICE.extract(response, {}) == letter(place)


@settings(max_examples=300)
@given(st.lists(st.sampled_from(WORDS), min_size=2, max_size=12, unique=True), st.data())
def test_the_options_own_text_is_a_vote_for_it(options, data):
    chosen = data.draw(st.sampled_from(options))
    response = data.draw(st.sampled_from(BY_TEXT)).format("", chosen)
    assert CHOICE.extract(response, {"options": options}) == chosen, response


def test_a_letter_of_an_options_own_text_is_no_vote():
    row = {"options": ["Both A and B", "mass", "A or B"]}
    assert CHOICE.extract("Therefore **Both A and B** is correct.", row) in (None, "Both A and B")
    assert CHOICE.extract("Therefore **A or B** is correct.", row) in (None, "A or B")
    assert CHOICE.extract("Therefore **B** is correct.", row) == "mass"


PLACES = {"options": ["London", "Paris", "Rome", "Madrid"]}


@pytest.mark.parametrize(
    "response",
    ["It cannot be (A), (C) or (D).", "The answer cannot be (D).", "It is not (A).", "The answer is not (A).",
     "(A) is wrong.", "So (A), (C) and (D) are wrong.", "Neither (A) nor (C).", "Neither A nor C is correct.",
     "(A) isn't correct.", "Option A is not correct.", "Don't choose (A)", "(A) cannot be right."],
)  # fmt: skip
def test_a_letter_that_is_ruled_out_is_no_vote(response):
    assert CHOICE.extract(response, PLACES) is None
    assert CHOICE.extract(response, {}) is None


@pytest.mark.parametrize(
    "response",
    ["It is (B), not (C).", "It is not (A) but (B).", "I would rule out (A) and choose (B).", "Not (C). (B) is right.",
     "I cannot see why, but it must be (B).", "We cannot choose (A), so it is (B).",
     "(B) is right because (A), (C) and (D) are wrong."],
)  # fmt: skip
def test_the_letter_beside_one_that_is_ruled_out_is_a_vote(response):
    assert CHOICE.extract(response, PLACES) == "Paris"
    assert CHOICE.extract(response, {}) == "B"


@pytest.mark.parametrize("first", ["**B**", "B", "(B)", "B.", "\n B)"])
def test_a_letter_alone_on_the_first_line_is_read_where_nothing_else_names_an_option(first):
    assert CHOICE.extract(f"{first}\n\nExplanation: it lies on the Seine.", PLACES) == "Paris"
    assert CHOICE.extract(f"{first}\n\nThe answer is C.", PLACES) == "Rome"
    assert CHOICE.extract("A dog barks.\n\nIt lies on the Seine.", PLACES) is None


@pytest.mark.parametrize("options", [["a", "b", "c", "d"], {"A": "a", "B": "b", "C": "c", "D": "d"}])
@pytest.mark.parametrize("response", ["(E)", "\\boxed{E}", "The answer is J.", "<answer>F</answer>", "E. e", "E"])
def test_a_letter_beyond_the_options_is_missing(options, response):
    assert CHOICE.extract(response, {"options": options}) is None


@pytest.mark.parametrize(
    "response",
    ["A dog barks", "I think", "A", "I", "A lot of people say so.", "The answer is A dog of sorts", "It is I who knows",
     "I.", "The answer is I think", "42", "The answer is A and B", "\\boxed{A, B}", "A or B", "", "(AB)", "Ab"],
)  # fmt: skip
def test_prose_several_letters_and_what_is_no_option_are_missing(response):
    options = {"options": {"B": "one", "C": "two"}}
    assert CHOICE.extract(response, options) is None


@pytest.mark.parametrize(
    "response", ["A dog barks", "I think", "The answer is A dog", "A lot", "Paris", "The answer is I think"]
)
def test_without_options_words_are_no_letters(response):
    assert CHOICE.extract(response, {}) is None


def test_what_names_no_option_hides_no_other_place_but_a_letter_does():
    row = {"options": ["x", "y"]}
    assert CHOICE.extract("The answer is B.\nMy answer is firm.", row) == "y"
    assert CHOICE.extract("\\boxed{17}\nThe answer is B.", row) == "y"
    # A letter beyond the options, or two letters, are an answer that is none.
    assert CHOICE.extract("The answer is B.\nThe answer is K.", row) is None
    assert CHOICE.extract("The answer is B.\nThe answer is A and B.", row) is None
    assert CHOICE.extract("The answer is A.\nWait, the answer is B.", row) == "y"


@pytest.mark.parametrize(
    ("response", "answer"),
    [("London, Paris", None), ("Answer: Paris, London.", None), ("Paris, the capital", "Paris"),
     ("The answer is Paris, not London", "Paris")],
)  # fmt: skip
def test_two_options_one_after_the_other_are_no_choice(response, answer):
    assert CHOICE.extract(response, {"options": ["London", "Paris"]}) == answer


def test_data_sets_as_they_are_shipped():
    assert CHOICE.extract("The answer is (I).", MMLU_PRO) == "Fair"
    assert CHOICE.is_right("Fair", MMLU_PRO["answer"], MMLU_PRO)
    assert CHOICE.is_right("Fair", str(MMLU_PRO["answer_index"]), MMLU_PRO)
    assert CHOICE.extract("B", MMLU) == "4"
    assert CHOICE.extract("B", {"options": [1, 2.5]}) == "2.5"
    wrong = [GPQA[f"Incorrect Answer {place}"] for place in (1, 2, 3)]
    options = [GPQA["Correct Answer"], *wrong]
    random.Random(0).shuffle(options)
    row = {"problem": GPQA["Question"], "options": options}
    right = letter(options.index(GPQA["Correct Answer"]))
    assert CHOICE.is_right(CHOICE.extract(f"The answer is {right}", row), GPQA["Correct Answer"], row)
    assert CHOICE.is_right(CHOICE.extract("\\boxed{10^-4 eV}", row), "10^-4 eV", row)
    assert not CHOICE.is_right(CHOICE.extract("\\boxed{10^-8 eV}", row), "10^-4 eV", row)
    assert CHOICE.is_right(CHOICE.extract("The answer is 2.", ARC), ARC["answerKey"], {**ARC})


def test_gold_that_could_name_two_options_stops_until_it_is_said_which():
    """MMLU's gold is a place, and these options are numbers: place 2 is the text 2, place 1 is not the text 1."""
    with pytest.raises(DataError, match="no option"):
        CHOICE.is_right("4", "9", MMLU)
    row = {"problem": "Find it.", "options": ["1", "2", "3"]}
    with pytest.raises(DataError, match="two options"):
        CHOICE.is_right("2", "1", row)
    assert parse_kind({"name": "choice", "gold": "place"}).is_right("2", "1", row)
    assert parse_kind({"name": "choice", "gold": "text"}).is_right("1", "1", row)
    assert not CHOICE.is_right(None, "A", row)


@pytest.mark.parametrize("gold", ["B", "(B)", "b", "1", "Paris", "paris."])
def test_gold_is_a_letter_a_place_or_a_text(gold):
    assert CHOICE.is_right("Paris", gold, {"options": ["London", "Paris"]})
    assert not CHOICE.is_right("London", gold, {"options": ["London", "Paris"]})


@pytest.mark.parametrize(
    "row",
    [{"options": []}, {"options": "A) x"}, {"options": ["x"] * 27}, {"choices": {"label": ["A"], "text": ["x", ""]}}],
)  # fmt: skip
def test_options_in_another_form_are_refused(row):
    with pytest.raises(DataError, match=r"options|choices"):
        CHOICE.extract("A", {"problem": "Which?", **row})


def test_a_mapping_of_a_parquet_file_has_none_for_options_of_other_rows():
    row = {"options": {"A": "Lyon", "B": "Paris", "C": None}}
    assert [CHOICE.extract(said, row) for said in ("B", "C", "Paris")] == ["Paris", None, "Paris"]


@pytest.mark.parametrize("kind", [{"name": "choice"}, {"name": "mixed", "default": "choice"}])
@pytest.mark.parametrize(
    ("problem", "listed"),
    [("Where?", False), ("Where? (A) Lyon (B) Paris", True), ("Where?\nA. Lyon\nB. Paris", True),
     ("Is it Lyon or Paris?", True), ("Is it Lyon?", False)],
)  # fmt: skip
def test_a_policy_sees_the_options(write_jsonl, kind, problem, listed):
    path = write_jsonl("prompts.jsonl", [{"problem": problem, "options": ["Lyon", "Paris"]}, {"problem": "Yes or no?"}])
    source = PromptSource(str(path), "problem")
    if listed:
        assert len(load_prompts(source, kind=parse_kind(kind))) == 2
    else:
        with pytest.raises(DataError, match=r'line 1: the prompt does not list the options .* such as "\(A\) Lyon"'):
            load_prompts(source, kind=parse_kind(kind))


@given(st.lists(st.sampled_from(["Paris", "London", "A dog", None]), min_size=1, max_size=5))
def test_choosing_the_same_option_is_an_equivalence(answers):
    row = {"options": ["London", "Paris", "A dog"]}
    is_equivalence_whatever_the_order(CHOICE, row, answers)
    keys_are_classes(CHOICE, row, [answer for answer in answers if answer])
