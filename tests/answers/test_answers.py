"""Extraction, keys and classes: what training needs of them."""

import pytest

from restrain_openrlhf.answers import classes, extract


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"so \boxed{12}", "12"),
        (r"\boxed{1} or rather \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\boxed {7}", "7"),
        (r"\fbox{x+1}", "x+1"),
        (r"9750\boxed{579}", "579"),
        ("The final answer is 42.", "42"),
        ("Answer: $x=3$", "x=3"),
        ("#### 1,234", "1,234"),
        (r"\boxed 5", "5"),
        (r"\boxed{\left\{1,2\right\}}", r"\left\{1,2\right\}"),
        ("So the balance is −5.", "−5"),
        ("So the balance is –5.", "–5"),
        ("The answer is $x$ = 5.", "$x$ = 5"),
        (r"The answer is $\pi$/2.", r"$\pi$/2"),
        ("Therefore $x$ = 5 holds.", "$x$ = 5 holds"),
        ("**The answer is $5$**", "5"),
        ("The answer is:\n- 5\n- 6", "5"),
        ("The answer is -5", "-5"),
        ("2π", "2π"),
        ("It costs 1.5 million in all", "1.5 million"),
        ("So there are 2^10 of them", None),
        ("It is then 3,5 as above", None),
        ("We meet at 10:30", None),
        ("So it cannot be 3.", None),
        ("So the root cannot be $3$.", None),
        ("So x isn't 3.", None),
        ("no answer here", None),
        (r"\boxed{}", None),
        (r"\boxed{unfinished", None),
        ("", None),
    ],
)
def test_the_last_final_answer_is_found(response, answer):
    assert extract(response) == answer


def test_classes_are_numbered_by_first_appearance_and_skip_missing_answers():
    assert classes(["7", None, "3", "07", None, "3.0"]) == [0, None, 1, 0, None, 1]
