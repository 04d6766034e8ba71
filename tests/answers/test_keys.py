"""Which answers are equal to a vote, by category; cases of our own beside the public ones."""

import pytest

from restrain_openrlhf.answers import canonical_key


def equal(one, other):
    return canonical_key(one) == canonical_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0.5", ".50"),
        ("1,234,567", "1234567"),
        ("12{,}500", "12500"),
        (r"3\frac{1}{4}", "13/4"),
        (r"-\frac{2}{4}", "-0.5"),
        (r"2^{10}", "1024"),
        ("6.02e23", r"6.02 \times 10^{23}"),
        (r"\sqrt{12}", r"2\sqrt 3"),
        (r"\frac{1}{\sqrt{3}}", r"\frac{\sqrt{3}}{3}"),
        (r"\log_3 81", "4"),
        (r"\cos(\pi/3)", "1/2"),
        (r"\sqrt[3]{-8}", "-2"),
        (r"\binom{6}{2}", "15"),
        ("5!", "120"),
        (r"e^{i\pi}", "-1"),
        (r"(x-1)(x+1)", "x^2-1"),
        (r"\sin^2 t + \cos^2 t", "1"),
        (r"\frac{a+b}{2}", r"\frac a2+\frac b2"),
        (r"|x|", r"\sqrt{x^2}"),
        ("(1, 2)", r"\left(1,\frac{4}{2}\right)"),
        (r"\{3,1,2\}", "1, 2, 3"),
        (r"1 \pm \sqrt2", r"1+\sqrt2, 1-\sqrt2"),
        (r"(-\infty, 3]", r"x \le 3"),
        ("2 < x < 5", "(2,5)"),
        ("-2x > 6", "x < -3"),
        (r"(0,1)\cup(2,3)", r"(2,3) \cup (0,1)"),
        ("x = 7", "7"),
        ("2x + 3y = 6", "4x = 12 - 6y"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{bmatrix} 1 & 2 \\ 3 & 8/2 \end{bmatrix}"),
        (r"\text{(B)}", "B"),
        (r"90^\circ", "90"),
        (r"15\text{ cm}", "15"),
        (r"12\text{ cm}^2", "12"),
        (r"\sin 30^\circ", "1/2"),
        ("e", "e^1"),
        (r"\varnothing", r"\emptyset"),
        (r"\$45", "45"),
        (r"30\%", "30"),
        (r"\text{Blue}", "blue"),
    ],
)
def test_equal_answers_have_one_key(one, other):
    assert equal(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("10000", "10001"),
        (r"12\text{ cm}^2", "144"),
        (r"2\in M", r"3\in M"),
        ("5C4", "5C3"),
        ("123456789012345678901234567890123", "123456789012345678901234567890124"),
        ("0.333", r"\frac13"),
        (r"\frac{1}{2^{99}}", r"\frac{1}{2^{98}}"),
        (r"\frac{1}{2004!}", r"\frac{1}{2006!}"),
        ("2(3)", "23"),
        ("8", "8i"),
        ("x", "-x"),
        ("|x|", "x"),
        ("(1,2)", "(2,1)"),
        ("(0,1)", "[0,1]"),
        ("(0,1)", "[0,1)"),
        ("(1,2)", r"\{1,2\}"),
        ("x > 1", "x < 1"),
        ("x > 1", r"x \ge 1"),
        (r"x \ne 1", "x = 1"),
        ("x^2+y^2=1", "x^2+y^2=4"),
        ("f(2)=0", "f(3)=0"),
        ("k=0, n=1", "k=1, n=0"),
        (r"204_5", r"204_6"),
        (r"\text{east}", r"\text{west}"),
        ("A", "B"),
        (r"\pm 3", "3"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}"),
        ("0,1", "01"),
        (r"\frac13,1,9", r"\frac13,-2,5"),
        ("2x+1=5", "5"),
    ],
)
def test_different_answers_have_different_keys(one, other):
    assert not equal(one, other)
