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


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("0579", "579", True),
        ("1,234", "1234", True),
        ("0.5", r"\frac{1}{2}", True),
        (r"\dfrac12", "1/2", True),
        ("-3", "3", False),
        ("x+1", " x + 1 ", True),
        ("10000", "10001", False),
        ("1e5", "100000", True),
        ("1.5 million", "1500000", True),
        (r"1.5\text{ million dollars}", r"\$1{,}500{,}000", True),
        (r"2\text{ million}", r"2\text{ billion}", False),
        (r"2\text{ thousand}", "2", False),
        (r"\frac34\text{ million}", r"\frac34", False),
        (r"2\text{ thousandths}", r"2000", False),
        ("5 €", "€5", True),
        (r"\lvert x \rvert", "|x|", True),
        (r"1, 2, \ldots, 10", r"1,2,\dots,10", True),
        ("x > 1, y > 2", "y > 2, x > 1", True),
        ("x > 1, y > 2", "x > 2, y > 1", False),
        (r"x > 1 \text{ and } y < 2", r"y > 1 \text{ and } x < 2", False),
        (r"x < 1 \text{ or } y > 2", r"y < 1 \text{ or } x > 2", False),
        (r"x \in [0,1], y \in [2,3]", r"y \in [0,1], x \in [2,3]", False),
        (r"x \ne 1, y \ne 2", r"y \ne 1, x \ne 2", False),
        ("x = 1, y > 2", "y = 1, x > 2", False),
        (r"\begin{cases} x=1, y>0 \\ x=0, y<0 \end{cases}", r"\begin{cases} x=0, y>0 \\ x=1, y<0 \end{cases}", False),
        (r"\begin{cases} x=1, \\ y=0 \end{cases}", "x = 1, y = 0", True),
    ],
)
def test_equal_answers_share_a_class(one, other, equal):
    assert (len(set(classes([one, other]))) == 1) is equal


def test_classes_are_numbered_by_first_appearance_and_skip_missing_answers():
    assert classes(["7", None, "3", "07", None, "3.0"]) == [0, None, 1, 0, None, 1]
