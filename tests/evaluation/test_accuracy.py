"""pass@1 and maj@k on worked cases."""

import pytest

from restrain_openrlhf.answers import parse_kind
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.result import accuracy
from restrain_openrlhf.reference import ReferenceRow
from restrain_openrlhf.reference.prompts import Prompt


def row(problem, *answers):
    return ReferenceRow.of_answers(Prompt(problem, problem, problem, "line 1"), answers)


ROWS = [row("a", "1", "01", "2", None), row("b", "5", "5", "5", "5"), row("c", "8", "9", "9", None)]
GOLD = {text_hash("a"): "1", text_hash("b"): "6", text_hash("c"): "9"}


def test_pass_at_1_and_majority_of_worked_problems():
    found = accuracy(ROWS, GOLD)
    assert found.pass_at_1 == pytest.approx((0.5 + 0 + 0.5) / 3)
    assert found.maj_at_k[4] == pytest.approx(2 / 3)
    assert found.missing_share == pytest.approx(2 / 12)
    assert found.low <= found.pass_at_1 <= found.high
    assert found == accuracy(ROWS, GOLD)


def test_a_problem_without_gold_is_an_error():
    with pytest.raises(DataError, match="'c'"):
        accuracy(ROWS, {text_hash("a"): "1", text_hash("b"): "6"})


def test_answers_are_right_by_their_own_kind():
    text = parse_kind({"name": "text"})
    prompt = Prompt("a", "Who?", "Who?", "here")
    row = ReferenceRow.of_answers(prompt, ["The Beatles", "beatles!", "Stones", None], (), text)
    assert accuracy([row], {text_hash("Who?"): "Beatles"}, text).pass_at_1 == 0.5
