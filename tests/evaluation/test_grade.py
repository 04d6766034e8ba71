"""Grading depends on the text alone, follows the policy of evaluation, and never fails."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.answers import MATHEMATICS, extract
from restrain_openrlhf.answers.kind import Grade
from restrain_openrlhf.evaluation.grade import each_rollouts, grade_answers


@pytest.mark.parametrize(
    ("response", "gold", "answer", "correct"),
    [
        (r"so \boxed{\frac{1}{2}}", "0.5", r"\frac{1}{2}", True),
        (r"so \boxed{3}", "4", "3", False),
        (r"the choice is \boxed{\text{(B)}}", "B", r"\text{(B)}", True),
        (r"(A) is wrong, \boxed{C}", "A", "C", False),
        ("", "4", None, False),
    ],
)
def test_golden_grades(response, gold, answer, correct):
    assert MATHEMATICS.grade(response, gold, {}) == Grade(answer, correct)


@given(st.lists(st.sampled_from([r"\boxed{1}", r"\boxed{2}", r"\boxed{1.0}", "none", "1"]), min_size=1, max_size=8))
def test_the_same_text_has_the_same_grade_wherever_it_stands(responses):
    row = grade_answers("p", list(map(extract, responses)), "1")
    for place, response in enumerate(responses):
        assert Grade(row.answers[place], row.correct[place]) == MATHEMATICS.grade(response, "1", {})


@given(st.text(max_size=200), st.text(min_size=1, max_size=20))
def test_any_text_is_graded(response, gold):
    assert MATHEMATICS.grade(response, gold, {}) == MATHEMATICS.grade(response, gold, {})


def test_real_rollouts_agree_with_the_reference_grading_but_for_one_problem(shared):
    path = shared / "rollouts" / "math_50x8.jsonl"
    reference = [json.loads(line)["reference_correct"] for line in path.read_text().splitlines()]
    differing = [
        (row.id, row.answer, ours, theirs)
        for row, verdicts in zip(each_rollouts(path), reference, strict=True)
        for response, theirs in zip(row.responses, verdicts, strict=True)
        if (ours := MATHEMATICS.grade(response, str(row.answer), {}).correct) != theirs
    ]
    # Gold is 10{,}000, which the reference grader does not read as a number; 9999 is within its own 1e-4.
    assert differing == [("72", "10{,}000", True, False)] * 5
