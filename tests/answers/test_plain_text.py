"""What is no mathematics: words, dates, telephone numbers, SQL, JSON and code are text, and hold no last number."""

import time

import pytest

from restrain_openrlhf.answers import canonical_key, extract
from restrain_openrlhf.answers.kinds.mathematics import is_right

SELECT, DELETE = "SELECT name FROM users WHERE x = 5", "DELETE FROM users WHERE id = 5"


def equal(one, other):
    return canonical_key(one) == canonical_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Yes", "yes"),
        ("YES", r"\text{yes}"),
        ("Yes!", "yes."),
        ("No", "no"),
        ("True", "true"),
        ("FALSE", "False"),
        ("Odd", r"\text{odd}"),
        ("US", "us"),
        ("$Yes$", "(yes)"),
        ("It is", "it is"),
        ("ab", "ba"),
        ("xy", r"y \cdot x"),
        ("mg", "m g"),
        ("kT", r"T \times k"),
        ("PQ", "QP"),
        ("2ma", "2am"),
        ("pi", r"\pi"),
        ("number of ways = 5", "5"),
        ("10-3", "7"),
        ("12/3", "4"),
    ],
)
def test_the_same_words_and_the_same_mathematics_are_one_vote(one, other):
    assert equal(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no", "on"),
        ("US", "SU"),
        ("act", "cat"),
        ("IV", "VI"),
        ("Mg", "mg"),
        ("to be", "be to a"),
        ("2024-03-01", "2024-01-03"),
        ("2024-03-01", "2020"),
        ("3/4/2024", "4/3/2024"),
        ("01/02/24", "02/01/24"),
        ("555-1234", "556-1235"),
        ("(555) 123-4567", "(555) 124-4568"),
        (SELECT, DELETE),
        (SELECT, "5"),
        (DELETE, "5"),
        ("SELECT * FROM t WHERE x = 5", "5"),
        ("SELECT a, b FROM t", "SELECT b FROM t, a"),
        ('{"x": 5}', "5"),
        ("we first have to show that the sum of all these = 5", "5"),
    ],
)
def test_different_texts_are_different_votes(one, other):
    assert not equal(one, other)
    assert not is_right(one, other)


@pytest.mark.parametrize(
    "response",
    [
        "```python\ndef f(n):\n    return n + 5\n```",
        "```json\n{\"total\": 5}\n```",
        "Here is the query:\n```sql\nSELECT x FROM t WHERE id = 5\n```",
        "```python\nprint(5)",
        '{"name": "Ann", "age": 5}',
        'The object:\n{\n  "age": 5 }',
        SELECT,
        "Sure:\n" + SELECT + ";",
        "select name from users limit 5",
        "SELECT name\nFROM users\nWHERE x = 5",
        "def f(n):\n    m = n\n    m = n + 5",
        "def f(n):\n    return n + 5",
        "for i in range(3):\n    print(i, 5)",
        "total = f(1)\n\nprint('The answer is', 5)",
        "```python\nreturn 5\n```<|im_end|>",
        "x = 1\n" * 5000 + "```python\n" + "y = 1\n" * 5000 + "z 5\n```",
    ],
)  # fmt: skip
def test_code_json_and_sql_are_no_answer(response):
    assert extract(response) is None


@pytest.mark.parametrize(
    "response",
    [" " * 19_000 + "5", "_" * 19_000 + "5", "SELECT 5\n" * 2000, "```\n" * 5000, ")\n\n" * 6000, '{"' * 9000 + "5]",
     ")  " * 6000 + "5", "a\n\n" * 6000 + "x = 5", ', "a' * 5000 + "}", "```x\n" * 100_000 + "5"],
)  # fmt: skip
def test_hostile_responses_are_read_at_once(response):
    start = time.process_time()
    extract(response)
    extract(f"The answer is {response}")
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("```python\nprint(6 * 7)\n```\nThis prints 42.", "42"),
        ("```python\nprint(6 * 7)\n```\n```output\n42\n```", "42"),
        ("```\n42\n```", "42"),
        ("```\nThe answer is 42.\n```", "42"),
        ("The answer is 42.\n```python\nprint(6 * 7)\n```", "42"),
        ("We find $x = 5$.\n\n```python\nx = 4\n```", "x = 5"),
        ("```python\nx = 4\n```\n" + r"\boxed{5}", "5"),
        ("so x = 5;", "5"),
        ("Select two from the list: 5", "5"),
        ("Therefore f(3) = 7", "7"),
        (f"The answer is {SELECT}.", SELECT),
        (rf"\boxed{{{SELECT}}}", SELECT),
    ],
)
def test_an_answer_beside_code_is_read(response, answer):
    assert extract(response) == answer
