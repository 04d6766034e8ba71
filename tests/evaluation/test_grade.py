"""Grades, pass@k, maj@k, intervals and reliability against cases worked by hand and against counting every choice."""

import json
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.answers import MATHEMATICS, extract, parse_kind
from restrain_openrlhf.answers.kind import Grade
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.grade import (
    GradeRow,
    ReliabilitySoFar,
    grade_answers,
    interval_over_problems,
    majority_right,
    mean_pass_at_k,
    pass_at_k,
    placed_rollouts,
    powers_up_to,
    wilson_interval,
)
from restrain_openrlhf.evaluation.result import accuracy
from restrain_openrlhf.reference import ReferenceRow
from restrain_openrlhf.reference.prompts import Prompt


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


def test_real_rollouts_agree_with_the_reference_grading_but_for_one_problem(shared):
    path = shared / "rollouts" / "math_50x8.jsonl"
    reference = [json.loads(line)["reference_correct"] for line in path.read_text().splitlines()]
    differing = [
        (row.id, row.answer, ours, theirs)
        for (_, row), verdicts in zip(placed_rollouts(path), reference, strict=True)
        for response, theirs in zip(row.responses, verdicts, strict=True)
        if (ours := MATHEMATICS.grade(response, str(row.answer), {}).correct) != theirs
    ]
    # Gold is 10{,}000, which the reference grader does not read as a number; 9999 is within its own 1e-4.
    assert differing == [("72", "10{,}000", True, False)] * 5


def row(answers, gold="1"):
    classes, correct = MATHEMATICS.classes(answers, {}), [answer == gold for answer in answers]
    return GradeRow(id="p", gold=gold, answers=answers, classes=classes, correct=correct)


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_subsets_with_a_right_one(case):
    n, right, k = case
    subsets = list(combinations([True] * right + [False] * (n - right), k))
    assert pass_at_k(n, right, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))
    assert mean_pass_at_k(n, [right, n], k) == pytest.approx((pass_at_k(n, right, k) + 1) / 2)


def test_votes_are_over_equal_answers_and_missing_ones_do_not_vote():
    answers, correct = ["3", "0.5", r"\frac12", None], [False, True, True, False]
    halves = GradeRow(id="p", gold="1/2", answers=answers, classes=[0, 1, 1, None], correct=correct)
    for graded, is_right in ((halves, True), (row([None, None, None, "1"]), True), (row([None, None]), False)):
        assert majority_right(graded.group, graded.correct) is is_right


NUMBER = parse_kind({"name": "number"})


@given(st.permutations(["1.0", "1.0", "1.00005", "1.00009", "1.00009", "1.00009", "2", "2"]))
def test_the_answer_that_is_graded_for_a_class_does_not_depend_on_the_order_of_rollouts(answers):
    """Of six equal numbers 1.00009 is the most frequent; gold is 1.00015, so that 1.0 is wrong and 1.00009 right."""
    correct = [answer in ("1.00009", "1.00005") for answer in answers]
    graded = GradeRow(id="p", gold="1.00015", answers=answers, classes=NUMBER.classes(answers, {}), correct=correct)
    assert graded.group.ranked() == [("1.00009", 6), ("2", 2)]
    assert majority_right(graded.group, graded.correct)


def test_the_interval_over_problems_by_hand():
    # Shares 0, 1/2, 1, 1/2: mean 1/2, s² = 1/6, variance of the mean 1/24, so 1/4 / (1/24) = 6 independent problems.
    # Wilson of 3 of 6, z² = 3.8415: middle 1/2, half 1.96 / 1.64024 · √(1/24 + 3.8415 / 144) = 0.31239.
    assert interval_over_problems([0.0, 0.5, 1.0, 0.5]) == pytest.approx((0.18761, 0.81239), abs=1e-5)


def test_intervals_where_nothing_differs_are_those_of_as_many_draws():
    assert interval_over_problems([0.3] * 30) == wilson_interval(0.3 * 30, 30)
    assert interval_over_problems([1.0]) == wilson_interval(1, 1)


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n), min_size=1, max_size=20))))
def test_intervals_hold_the_mean(case):
    n, right = case
    mean = sum(right) / n / len(right)
    low, high = interval_over_problems([count / n for count in right])
    assert 0 <= low <= mean + 1e-9
    assert mean - 1e-9 <= high <= 1


def test_intervals_hold_the_truth_as_often_as_they_say():
    draws, problems, n = 1500, 83, 8
    dice = np.random.default_rng(0)
    of_problems = 0
    for _ in range(draws):
        difficulty = dice.beta(0.5, 1.0, problems)  # mean 1/3
        right = dice.binomial(n, difficulty).tolist()
        low, high = interval_over_problems([count / n for count in right])
        of_problems += low <= 1 / 3 <= high
    # Four standard errors of a share of 0.95 among 1,500: 0.0225.
    assert of_problems / draws == pytest.approx(0.95, abs=0.0225)


def test_the_interval_of_a_share_of_few_is_wide():
    # z² = 3.8415: one of one is (1, 1 / 4.8415); none of two is (0, 3.8415 / 5.8415); half of ten by the formula.
    assert wilson_interval(1, 1) == pytest.approx((0.2065, 1.0), abs=1e-4)
    assert wilson_interval(0, 2) == pytest.approx((0.0, 0.6576), abs=1e-4)
    assert wilson_interval(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)


def test_reported_sizes_are_powers_of_two_and_n():
    assert [powers_up_to(n) for n in (16, 6, 1)] == [[1, 2, 4, 8, 16], [1, 2, 4, 6], [1]]


def reference_row(problem, *answers):
    return ReferenceRow.of_answers(Prompt(problem, problem, problem, "line 1"), answers)


ROWS = [
    reference_row("a", "1", "01", "2", None),
    reference_row("b", "5", "5", "5", "5"),
    reference_row("c", "8", "9", "9", None),
]
GOLD = {text_hash("a"): "1", text_hash("b"): "6", text_hash("c"): "9"}


def test_pass_at_1_and_majority_of_worked_problems():
    found = accuracy(ROWS, GOLD)
    assert found.pass_at_1 == pytest.approx((0.5 + 0 + 0.5) / 3)
    assert found.maj_at_n == pytest.approx(2 / 3)
    assert found.missing_share == pytest.approx(2 / 12)
    assert found.low <= found.pass_at_1 <= found.high


def test_a_problem_without_gold_is_an_error():
    with pytest.raises(DataError, match="'c'"):
        accuracy(ROWS, {text_hash("a"): "1", text_hash("b"): "6"})


def test_answers_are_right_by_their_own_kind():
    text = parse_kind({"name": "text"})
    prompt = Prompt("a", "Who?", "Who?", "here")
    row = ReferenceRow.of_answers(prompt, ["The Beatles", "beatles!", "Stones", None], text)
    assert accuracy([row], {text_hash("Who?"): "Beatles"}, text).pass_at_1 == 0.5


def test_reliability_by_majority_size():
    found = ReliabilitySoFar(4)
    found.add(row(["1", "1", "1", "2"]))  # majority of 3, right
    found.add(row(["2", "2.0", "1", "4/2"]))  # majority of 3, wrong, but a right one is there
    found.add(row(["2", "3", "4", None]))  # majority of 1, nothing right
    found.add(row([None, None, None, None]))
    rows = found.rows()
    assert [(row.size, row.problems) for row in rows] == [(0, 1), (1, 1), (3, 2)]
    three = rows[2]
    assert (three.majority_accuracy, three.mean_accuracy) == (0.5, 0.5)
    assert rows[1].majority_accuracy == 0.0
