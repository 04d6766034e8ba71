"""What prompts ask for beside what the kind of answer reads: read elsewhere is refused, asked otherwise is said."""

import pytest

from restrain_openrlhf.answers import parse_kind
from restrain_openrlhf.answers.asked import compare_forms
from restrain_openrlhf.errors import ConfigError

BOX, TAG = "Which city? Put it in \\boxed{}.", "Which city? Write <answer>...</answer>."
CAPITALS = ["The capital of France?", "The capital of Italy?"]
REFUSED, SAID, NOTHING = "reads none as it is set", "note: the prompts ask for ", ""


@pytest.mark.parametrize(
    ("kind", "prompts", "outcome"),
    [
        ({"name": "math"}, [BOX], NOTHING),
        ({"name": "math"}, CAPITALS, f"{SAID}neither a box"),
        ({"name": "text"}, [BOX], f"{SAID}a box"),
        ({"name": "text"}, [TAG], NOTHING),
        ({"name": "text", "read": "tag"}, [BOX], REFUSED),
        # Its answer would be \boxed{Paris}, and never be right.
        ({"name": "text", "read": "last_line"}, [BOX], REFUSED),
        ({"name": "text", "read": "marker"}, [TAG], REFUSED),
        ({"name": "text", "read": "tag", "tag": "final_answer"}, ["<final_answer>x</final_answer>"], NOTHING),
        ({"name": "text", "read": "tag"}, ["<final_answer>x</final_answer>"], REFUSED),
        ({"name": "text", "read": "agreed"}, ["Who? Answer in one short sentence."], NOTHING),
        ({"name": "code"}, [BOX], REFUSED),
        ({"name": "code"}, ["Write it in a ```python block."], NOTHING),
        ({"name": "sql"}, [BOX], REFUSED),
        ({"name": "number"}, [BOX], f"{SAID}a box"),
        ({"name": "number"}, ['End with "The answer is" and a number.'], NOTHING),
        # JSON may be what a question is about.
        ({"name": "number"}, ['How many keys has the JSON {"a": 1}?'], f"{SAID}JSON"),
        ({"name": "json"}, ["Answer in JSON."], NOTHING),
        # Both are asked for, and one is read; one prompt of several speaks of a box.
        ({"name": "text", "read": "tag"}, [BOX + TAG], NOTHING),
        ({"name": "text", "read": "tag"}, ["What does \\boxed{x} draw?", *CAPITALS], SAID),
        ({"name": "math"}, [], NOTHING),
    ],
)
def test_what_is_asked_for_is_compared_with_what_is_read(kind, prompts, outcome):
    made = parse_kind(kind)
    pairs = [(prompt, {"problem": prompt}) for prompt in prompts]
    if outcome == REFUSED:
        with pytest.raises(ConfigError, match=REFUSED) as error:
            compare_forms(made, pairs)
        assert made.instruction_for({}) in str(error.value)
    else:
        found = compare_forms(made, pairs)
        assert found.startswith(outcome)
        assert bool(found) is bool(outcome)


def test_an_option_is_read_by_its_letter_whatever_its_answer_is_called():
    row = {"problem": "Which river?", "options": ["Po", "Ems"]}
    made = parse_kind({"name": "choice"})
    assert compare_forms(made, [('Which river? End with "The answer is" and a letter.', row)]) == ""
    for options in (["Po", "Ems"], {"1": "Po", "2": "Ems"}):
        assert compare_forms(made, [(BOX, {**row, "options": options})]).startswith(SAID)


def test_each_row_is_compared_with_its_own_kind():
    made = parse_kind({"name": "mixed", "kinds": {"text": {"read": "tag"}}})
    rows = [(BOX, {"problem": BOX, "answers": name}) for name in ("math", "text")]
    assert compare_forms(made, rows) == ""
    with pytest.raises(ConfigError, match="Each of the first 1 prompts asks for a box"):
        compare_forms(made, rows[1:])
