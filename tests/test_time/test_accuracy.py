"""Gold is joined by id."""

import pytest

from restrain_openrlhf.errors import DataError
from test_time.accuracy import read_gold


def test_gold_is_read_by_id_and_an_id_is_there_once(write_jsonl):
    path = write_jsonl("gold.jsonl", [{"id": 1, "answer": 5, "problem": "p"}, {"id": "b", "answer": "x"}])
    assert read_gold(path) == {"1": "5", "b": "x"}
    twice = write_jsonl("twice.jsonl", [{"id": 1, "answer": 5}, {"id": "1", "answer": 6}])
    with pytest.raises(DataError, match="line 2: the id '1' is there twice"):
        read_gold(twice)
