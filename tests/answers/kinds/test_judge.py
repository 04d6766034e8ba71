"""The kind `judge`: over real HTTP and as a function; what it asks, keeps and refuses."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import combinations, permutations
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from restrain_openrlhf.answers import MATHEMATICS
from restrain_openrlhf.answers.kind import parse_kind
from restrain_openrlhf.answers.kinds import judge as judges
from restrain_openrlhf.answers.kinds.judge import Judge
from restrain_openrlhf.errors import ConfigError, DataError, GraderError
from tests.conftest import ROOT
from tests.docs.printed import fenced, section

ROW = {"problem": "What is the capital?", "rubric": "letters do not matter", "gold": "secret"}
HERE = __name__
TOKEN = "s3cr3t-t0ken"
PAGE = section((ROOT / "docs" / "concepts" / "kinds.md").read_text(encoding="utf-8"), "judge")


@dataclass
class Service:
    """A judge for whom letter case does not matter; `replies` are given first, each a status, headers and a body."""

    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    replies: list[tuple[int, dict[str, str], str]] = field(default_factory=list)

    def judge(self, question: dict[str, Any]) -> dict[str, Any]:
        folded = [answer.casefold() for answer in question["answers"]]
        return {"classes": [7 * folded.index(answer) - 3 for answer in folded]}


class Handler(BaseHTTPRequestHandler):
    service: Service

    def do_POST(self):
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.service.asked.append(question)
        self.service.headers.append(dict(self.headers))
        scripted = self.service.replies.pop(0) if self.service.replies else None
        status, headers, body = scripted or (200, {}, json.dumps(self.service.judge(question)))
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body.encode())), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        """Nothing."""


@contextmanager
def serving() -> Iterator[Service]:
    service = Service()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("One", (Handler,), {"service": service}))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    service.url = f"http://127.0.0.1:{server.server_port}/judge"
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def service():
    with serving() as one:
        yield one


@pytest.fixture
def waits(monkeypatch):
    """The seconds that were waited for, without waiting."""
    waited: list[float] = []
    monkeypatch.setattr(judges, "time", SimpleNamespace(sleep=waited.append))
    return waited


@pytest.fixture(autouse=True)
def nothing_known():
    judges._verdict.cache_clear()


# Functions as judges: named as `package.module:function` below.
def by_case(answers: list[str], row: dict[str, Any]) -> list[int]:
    return [sorted({each.casefold() for each in answers}).index(answer.casefold()) for answer in answers]


def failing(answers: list[str], row: dict[str, Any]) -> list[int]:
    raise RuntimeError("no verdict today")


NO_FUNCTION = 3


def test_a_service_is_asked_once_with_sorted_different_answers_and_the_columns_that_are_sent(service):
    judge = Judge(url=service.url, send=("rubric",))
    answers = ["Rome", "PARIS", None, "paris", "Rome", "Paris"]
    assert judge.classes(answers, ROW) == [0, 1, None, 1, 0, 1]
    sent = {"problem": ROW["problem"], "rubric": ROW["rubric"]}
    assert service.asked == [{"answers": ["PARIS", "Paris", "Rome", "paris"], "row": sent}]
    assert Judge(url=service.url, send=("rubric",)).classes(answers[::-1], ROW) == [0, 1, 0, None, 0, 1]
    assert len(service.asked) == 1, "equal settings share what is known"
    judge.classes(answers, {**ROW, "rubric": "letters do"})
    assert len(service.asked) == 2


def test_the_protocol_is_that_of_the_page(service):
    question, reply = map(json.loads, fenced(PAGE, "json"))
    service.replies.append((200, {}, json.dumps(reply)))
    judge = Judge(url=service.url, send=("rubric",))
    assert judge.classes(["Rome", "Paris", "PARIS"], question["row"]) == [0, 1, 1]
    assert service.asked[-1] == question


def test_the_pages_function_joins_what_a_chain_of_equal_pairs_connects(monkeypatch):
    """1 is near 2 and 2 near 3, so 1 and 3 are one; 8 is near none of them. The order of the answers is nothing."""
    module = ModuleType("judges_of_the_page")
    exec(fenced(PAGE, "python")[0], vars(module))
    vars(module)["same_claim"] = lambda one, other, row: abs(int(one) - int(other)) <= row["near"]
    monkeypatch.setitem(__import__("sys").modules, module.__name__, module)
    judge = Judge(callable=f"{module.__name__}:by_pairs", send=("near",))
    for order in permutations(["1", "2", "3", "8"]):
        found = dict(zip(order, judge.classes(order, {**ROW, "near": 1}), strict=True))
        assert found["1"] == found["2"] == found["3"] != found["8"]


def test_a_function_is_a_judge():
    judge = parse_kind({"name": "judge", "callable": f"{HERE}:by_case"})
    assert judge.classes(["b", "A", "a", None, "B"], ROW) == [0, 1, 1, None, 0]
    assert [judge.is_right(answer, "A", ROW) for answer in ("a", "b", None)] == [True, False, False]


@pytest.mark.parametrize("answers", [["a", None, "a"], [None], []])
def test_one_answer_needs_no_judge(answers):
    assert Judge(callable=f"{HERE}:failing").classes(answers, ROW) == [each and 0 for each in answers]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.none(), st.text("aAbBcC", min_size=1, max_size=2)), max_size=10), st.randoms())
def test_the_order_of_the_rollouts_changes_numbers_alone(answers, rng):
    judge = Judge(callable=f"{HERE}:by_case")
    found = judge.classes(answers, ROW)
    assert [each is None for each in found] == [answer is None for answer in answers]
    known = [(answer, number) for answer, number in zip(answers, found, strict=True) if answer is not None]
    for (first, one), (second, other) in combinations(known, 2):
        assert (one == other) is (first.lower() == second.lower())
    places = rng.sample(range(len(answers)), len(answers))
    moved = judge.classes([answers[place] for place in places], ROW)
    assert len(set(zip(moved, (found[place] for place in places), strict=True))) == len(set(found))


# --- a judge that fails


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_busy_service_is_tried_again_after_longer_waits(service, waits, status):
    service.replies += [(status, {}, "busy")] * 3
    assert Judge(url=service.url).classes(["a", "b"], ROW) == [0, 1]
    assert len(service.asked) == 4
    assert all(low <= wait <= high for wait, (low, high) in zip(waits, [(0.5, 1.5), (1, 3), (2, 6)], strict=True))


def test_a_service_says_how_long_it_wants_to_be_left_alone(service, waits):
    asked = ("7", "86400", "Wed, 21 Oct 2026 07:28:00 GMT", "nan")
    service.replies += [(429, {"Retry-After": wait}, "") for wait in asked]
    Judge(url=service.url).classes(["a", "b"], ROW)
    assert waits[:2] == [7, 60]
    assert waits[2] < 7
    assert 0 < waits[3] < 13


NO_CLASSES = ("[0]", "[0, null]", "[true, false]", "[0.5, 1]", '"01"', "null", '{"a": 0, "b": 1}')


@pytest.mark.parametrize(
    ("reply", "tries", "said"),
    [
        ((500, {}, "out of memory"), 3, r"status 500: out of memory \(tries: 3\)"),
        ((403, {}, "who are you"), 1, r"status 403: who are you \(tries: 1\)"),
        ((307, {"Location": "http://127.0.0.1:1/else"}, "moved"), 1, "status 307"),
        ((200, {}, "<html>"), 1, "not JSON"),
        ((200, {"Content-Length": "100"}, "{}"), 3, r"2 bytes read, 98 more expected\) \(tries: 3\)"),
        ((200, {}, "[0, 1]"), 1, "`classes`: 2 whole numbers"),
        *(((200, {}, f'{{"classes": {classes}}}'), 1, "`classes`: 2 whole numbers") for classes in NO_CLASSES),
    ],
)
def test_a_failure_is_never_a_vote(service, waits, reply, tries, said):
    service.replies += [reply] * 3
    judge = Judge(url=service.url, tries=3)
    with pytest.raises(GraderError, match=said):
        judge.classes(["a", "b"], ROW)
    assert len(service.asked) == tries
    service.replies.clear()
    assert judge.classes(["a", "b"], ROW) == [0, 1]


def test_nobody_at_the_address_is_said(waits):
    with serving() as service:
        url = service.url
    with pytest.raises(GraderError, match=r"127.0.0.1:\d+/judge gave no verdict: .*refused.*tries: 5"):
        Judge(url=f"{url}?key=hidden").classes(["a", "b"], ROW)
    assert len(waits) == 4


def test_a_function_that_fails_is_said():
    with pytest.raises(GraderError, match=r"failing failed: RuntimeError: no verdict today"):
        Judge(callable=f"{HERE}:failing").classes(["a", "b"], ROW)


# --- tokens


@pytest.mark.parametrize("reply", [(403, {}, f"bad token {TOKEN}"), (200, {}, "x"), (200, {}, "{}")])
def test_a_token_goes_into_its_header_and_nowhere_else(service, monkeypatch, caplog, capfd, reply):
    monkeypatch.setenv("JUDGE_TOKEN", f"{TOKEN}\n")
    service.replies.append(reply)
    judge = Judge(url=service.url, token_variable="JUDGE_TOKEN")
    with pytest.raises(GraderError) as said:
        judge.classes(["a", "b"], ROW)
    assert service.headers[0]["Authorization"] == f"Bearer {TOKEN}"
    printed = capfd.readouterr()
    assert TOKEN not in f"{said.value}{said.value.__cause__}{printed}{caplog.text}{judge!r}{judge.identity}"
    assert TOKEN not in json.dumps(service.asked)


def test_a_token_is_not_sent_to_where_a_service_points(service, monkeypatch):
    monkeypatch.setenv("JUDGE_TOKEN", TOKEN)
    with serving() as other:
        service.replies.append((302, {"Location": other.url}, ""))
        with pytest.raises(GraderError, match="status 302"):
            Judge(url=service.url, token_variable="JUDGE_TOKEN").classes(["a", "b"], ROW)
        assert other.asked == []


@pytest.mark.parametrize("token", ["", "two words", "a\nb", "é"])
def test_a_token_that_no_header_can_carry_is_refused_unseen(service, monkeypatch, token):
    monkeypatch.setenv("JUDGE_TOKEN", token)
    with pytest.raises(ConfigError, match="JUDGE_TOKEN") as said:
        Judge(url=service.url, token_variable="JUDGE_TOKEN").classes(["a", "b"], ROW)
    assert not token or token not in str(said.value)


# --- settings and rows


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({}, "under callable or under url"),
        ({"url": "http://a", "callable": "a:b"}, "not under both"),
        ({"url": "file:///etc/passwd"}, "must start with http"),
        ({"url": "http:///equal"}, "name a host"),
        ({"url": "http://me:secret@a/"}, "must not contain a user name or a password"),
        ({"url": "http://a", "tries": 0}, "tries"),
    ],
)
def test_settings_that_make_no_judge_are_refused(block, said):
    with pytest.raises(ConfigError, match=said):
        parse_kind({"name": "judge", **block})


@pytest.mark.parametrize("name", ["no function", "no_such_module:f", f"{HERE}:no_such", f"{HERE}:NO_FUNCTION"])
def test_a_function_that_is_not_there_is_said(name):
    with pytest.raises(ConfigError, match=name):
        Judge(callable=name).check_machine()


def test_a_row_without_what_is_sent_is_said(service):
    with pytest.raises(DataError, match="no column 'level'"):
        Judge(url=service.url, send=("level",)).classes(["a", "b"], ROW)
    with pytest.raises(DataError, match="cannot be written as JSON"):
        Judge(url=service.url, send=("level",)).classes(["a", "b"], {**ROW, "level": {1, 2}})
    assert service.asked == []


def test_another_kind_reads_and_what_it_takes_for_equal_is_not_asked(service):
    judge = parse_kind({"name": "judge", "url": service.url, "read": {"name": "math"}})
    assert judge.extract(r"so \boxed{x+1}", ROW) == "x+1"
    assert judge.classes(["x+1", "1+x", "X+2"], ROW) == [0, 0, 1]
    assert service.asked[0]["answers"] == ["1+x", "X+2"]
    assert judge.identity == f"judge 1 (math {MATHEMATICS.version}) url='{service.url}'"


def test_a_kind_that_reads_may_have_settings_that_have_no_hash(service):
    judge = parse_kind({"name": "judge", "url": service.url, "read": {"name": "mixed", "kinds": {"text": {}}}})
    assert judge.classes(["1", "1.0", "2"], ROW) == [0, 0, 1]


def test_texts_are_read_as_the_kind_text_reads_and_compared_as_they_are_written(service):
    judge = Judge(url=service.url)
    response = "It is large.\nThe answer is **The Hague**, in the west."
    assert judge.extract(response, ROW) == parse_kind({"name": "text"}).extract(response, ROW)
    assert judge.classes(["The Hague", "the hague", "Hague", "The  Hague", "Hague!"], ROW) == [0, 1, 2, 0, 3]
    assert service.asked[-1]["answers"] == ["Hague", "Hague!", "The  Hague", "the hague"]


def test_the_columns_of_a_row_are_those_that_are_sent_and_read(service):
    judge = parse_kind({"name": "judge", "url": service.url, "send": ["rubric"], "read": {"name": "sql"}})
    assert judge.row_columns() == {"rubric", "database", "db_id", "schema", "database_digest"}


def test_how_a_judge_is_reached_is_not_part_of_what_it_is():
    one = Judge(url="http://a", revision="2")
    assert one.identity == Judge(url="http://a", revision="2", tries=1, seconds=2).identity
    assert one.identity != Judge(url="http://a", revision="3").identity


def test_what_the_reading_kind_calls_equal_is_asked_by_one_text_in_whatever_order(service):
    """So that an order of the rollouts costs no second verdict, and gives no other one."""
    judge = Judge(url=service.url, read={"name": "text"})
    for order in permutations(["paris.", "Paris", "PARIS", "Rome", "rome!"]):
        found = dict(zip(order, judge.classes(order, ROW), strict=True))
        assert found["paris."] == found["Paris"] == found["PARIS"] != found["Rome"] == found["rome!"]
    assert len(service.asked) == 1


def test_an_alias_that_the_reading_kind_knows_is_right_whatever_the_judge_says(service):
    judge = Judge(url=service.url, read={"name": "text"})
    row = {**ROW, "aliases": ["JFK"]}
    assert judge.is_right("JFK", "Kennedy", row)
    assert not judge.is_right("Nixon", "Kennedy", row)
