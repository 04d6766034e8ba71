"""Gold is joined by id, after the fact, and says what the adaptation was worth."""

import pytest

from restrain_openrlhf.errors import DataError
from restrain_openrlhf.hook.prompts import Prompt
from restrain_openrlhf.reference import ReferenceRow
from test_time.accuracy import compare, read_gold


def row(number, *answers):
    return ReferenceRow.of_answers(Prompt(f"p{number}", f"{number}?", f"{number}?", "here"), answers)


BEFORE = [row(1, "5", "5", "4"), row(2, "7", "8", "8"), row(3, "1", "1", "1"), row(4, None, "2", None)]
AFTER = [row(1, "5", "5", "5"), row(2, "7", "7", "8"), row(3, "9", "9", "1"), row(4, None, None, None)]
GOLD = {"p1": "5", "p2": "7.0", "p3": "1", "p4": "3"}


def test_solved_kept_and_lost_worked_by_hand():
    found = compare(BEFORE, AFTER, GOLD)
    assert (found.solved, found.kept, found.lost) == (("p2",), 1, ("p3",))
    assert (found.majority_before, found.majority_after) == (0.5, 0.5)
    assert found.pass_before == pytest.approx((2 / 3 + 1 / 3 + 1 + 0) / 4)
    assert found.pass_after == pytest.approx((1 + 2 / 3 + 1 / 3 + 0) / 4)
    assert (found.problems, found.k) == (4, 3)


def test_the_order_of_the_files_does_not_matter():
    assert compare(BEFORE[::-1], AFTER, dict(reversed(GOLD.items()))) == compare(BEFORE, AFTER, GOLD)


def test_a_problem_without_gold_is_named():
    with pytest.raises(DataError, match="'p2' has no answer in the gold file"):
        compare(BEFORE, AFTER, {"p1": "5"})


def test_gold_is_read_by_id_and_an_id_is_there_once(write_jsonl):
    path = write_jsonl("gold.jsonl", [{"id": 1, "answer": 5, "problem": "p"}, {"id": "b", "answer": "x"}])
    assert read_gold(path) == {"1": "5", "b": "x"}
    twice = write_jsonl("twice.jsonl", [{"id": 1, "answer": 5}, {"id": "1", "answer": 6}])
    with pytest.raises(DataError, match="line 2: the id '1' is there twice"):
        read_gold(twice)
