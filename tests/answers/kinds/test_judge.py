"""The kind `judge`: what a function is asked, what of it is kept, and what is refused."""

from collections.abc import Iterator
from itertools import combinations, permutations
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from restrain_openrlhf.answers.kind import parse_kind
from restrain_openrlhf.answers.kinds import judge as judges
from restrain_openrlhf.answers.kinds.judge import Judge
from restrain_openrlhf.answers.kinds.text import Text
from restrain_openrlhf.errors import ConfigError, GraderError
from tests.conftest import ROOT
from tests.docs.printed import fenced, section

ROW = {"problem": "What is the capital?", "gold": "secret"}
HERE = __name__
PAGE = section((ROOT / "docs" / "concepts" / "kinds.md").read_text(encoding="utf-8"), "judge")
# What the functions below were asked.
asked: list[tuple[list[str], dict[str, Any]]] = []


@pytest.fixture(autouse=True)
def nothing_known():
    judges._verdict.cache_clear()
    asked.clear()


# Functions as judges: named as `package.module:function` below.
def by_case(answers: list[str], row: dict[str, Any]) -> list[int]:
    asked.append((answers, row))
    folded = [answer.casefold() for answer in answers]
    return [7 * folded.index(answer) - 3 for answer in folded]


def failing(answers: list[str], row: dict[str, Any]) -> list[int]:
    raise RuntimeError("no verdict today")


NO_FUNCTION = 3


def judge(function: str = "by_case", **settings_of_it: Any) -> Judge:
    return Judge(callable=f"{HERE}:{function}", **settings_of_it)


def test_a_judge_is_asked_once_with_sorted_different_answers_and_the_problem():
    answers = ["Rome", "PARIS", None, "paris", "Rome", "Paris"]
    assert judge().classes(answers, ROW) == [0, 1, None, 1, 0, 1]
    assert asked == [(["PARIS", "Paris", "Rome", "paris"], {"problem": ROW["problem"]})]
    assert judge().classes(answers[::-1], ROW) == [0, 1, 0, None, 0, 1]
    assert len(asked) == 1, "equal settings share what is known"
    judge().classes(answers, {**ROW, "problem": "What is the largest city?"})
    judge(revision="2").classes(answers, ROW)
    assert len(asked) == 3


@pytest.fixture
def of_the_page(monkeypatch) -> Iterator[str]:
    """The name of the page's function, for which numbers at a distance of one are the same claim."""
    module = ModuleType("judges_of_the_page")
    exec(fenced(PAGE, "python")[0], vars(module))
    vars(module)["same_claim"] = lambda one, other, row: abs(int(one) - int(other)) <= 1
    monkeypatch.setitem(__import__("sys").modules, module.__name__, module)
    return f"{module.__name__}:by_pairs"


def test_the_pages_function_joins_what_a_chain_of_equal_pairs_connects(of_the_page):
    """1 is near 2 and 2 near 3, so 1 and 3 are one; 8 is near none of them. The order of the answers is nothing."""
    for order in permutations(["1", "2", "3", "8"]):
        found = dict(zip(order, Judge(callable=of_the_page).classes(order, ROW), strict=True))
        assert found["1"] == found["2"] == found["3"] != found["8"]


def test_an_answer_is_right_that_is_gold_or_an_alias_or_that_the_judge_calls_equal_to_gold():
    row = {**ROW, "aliases": ["JFK"]}
    assert [judge().is_right(answer, "Kennedy", row) for answer in ("Kennedy", "JFK", "KENNEDY")] == [True] * 3
    assert [judge().is_right(answer, "Kennedy", row) for answer in ("Nixon", None)] == [False] * 2
    assert asked[0] == (["KENNEDY", "Kennedy"], {"problem": ROW["problem"]})


@pytest.mark.parametrize("answers", [["a", None, "a"], [None], []])
def test_one_answer_needs_no_judge(answers):
    assert judge("failing").classes(answers, ROW) == [each and 0 for each in answers]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.none(), st.text("aAbBcC", min_size=1, max_size=2)), max_size=10), st.randoms())
def test_the_order_of_the_rollouts_changes_numbers_alone(answers, rng):
    found = judge().classes(answers, ROW)
    assert [each is None for each in found] == [answer is None for answer in answers]
    known = [(answer, number) for answer, number in zip(answers, found, strict=True) if answer is not None]
    for (first, one), (second, other) in combinations(known, 2):
        assert (one == other) is (first.lower() == second.lower())
    places = rng.sample(range(len(answers)), len(answers))
    moved = judge().classes([answers[place] for place in places], ROW)
    assert len(set(zip(moved, (found[place] for place in places), strict=True))) == len(set(found))


@pytest.mark.parametrize(
    "found", [[0], [0, None], [True, False], [0.5, 1], "01", b"01", {"a": 0, "b": 1}, None, {"classes": [0, 1]}]
)
def test_what_is_no_number_for_each_answer_is_never_a_vote(monkeypatch, found):
    monkeypatch.setattr(judges, "_said", lambda *_: found)
    with pytest.raises(GraderError, match="expected were 2 whole numbers"):
        judge().classes(["a", "b"], ROW)
    monkeypatch.setattr(judges, "_said", lambda *_: np.array([4, 4]))
    assert judge().classes(["a", "b"], ROW) == [0, 0]


def test_a_function_that_fails_is_said():
    with pytest.raises(GraderError, match=r"failing failed: RuntimeError: no verdict today. The group was not scored"):
        judge("failing").classes(["a", "b"], ROW)


@pytest.mark.parametrize("name", ["no function", "no_such_module:f", f"{HERE}:no_such", f"{HERE}:NO_FUNCTION"])
def test_a_function_that_is_not_there_is_said(name):
    with pytest.raises(ConfigError, match=name):
        Judge(callable=name).check_machine()


def test_texts_are_read_as_the_kind_text_reads_and_compared_as_they_are_written():
    response = "It is large.\nThe answer is **The Hague**, in the west."
    assert judge().extract(response, ROW) == Text().extract(response, ROW)
    assert judge().classes(["The Hague", "the hague", "Hague", "The  Hague", "Hague!"], ROW) == [0, 1, 2, 0, 3]
    assert asked[-1][0] == ["Hague", "Hague!", "The  Hague", "the hague"]
    tagged = parse_kind({"name": "judge", "callable": f"{HERE}:by_case", "read": "tag", "tag": "a"})
    assert tagged.extract("<a>Rome</a> or Paris", ROW) == "Rome"


def test_what_the_settings_of_text_call_equal_is_asked_by_one_text_in_whatever_order():
    """So that an order of the rollouts costs no second verdict, and gives no other one."""
    kind = judge(ignore_case=True, ignore_punctuation=True)
    for order in permutations(["paris.", "Paris", "PARIS", "Rome", "rome!"]):
        found = dict(zip(order, kind.classes(order, ROW), strict=True))
        assert found["paris."] == found["Paris"] == found["PARIS"] != found["Rome"] == found["rome!"]
    assert [answers for answers, _ in asked] == [["PARIS", "Rome"]]


def test_the_version_of_the_reading_and_of_the_judge_are_part_of_what_it_is():
    one = judge(revision="2")
    assert one.identity == f"judge 1 (text {Text.version}) callable='{HERE}:by_case' revision='2'"
    assert one.row_columns() == frozenset()
