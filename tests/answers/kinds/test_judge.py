"""The kind `judge`: over real HTTP and as a function, by groups and by pairs; what it costs, keeps and refuses."""

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import combinations, permutations
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from restrain_openrlhf.answers import MATHEMATICS
from restrain_openrlhf.answers.kind import AnswerKind, parse_kind
from restrain_openrlhf.answers.kinds.judge import endpoint, kind
from restrain_openrlhf.answers.kinds.judge.endpoint import Endpoint
from restrain_openrlhf.answers.kinds.judge.kind import Judge
from restrain_openrlhf.errors import ConfigError, DataError, GraderError
from tests.command_line import refused, restrain
from tests.conftest import ROOT
from tests.docs.printed import fenced, section

ROW = {"problem": "What is the capital?", "rubric": "letters do not matter", "gold": "secret"}
HERE = __name__
TOKEN = "s3cr3t-t0ken"


@dataclass
class Service:
    """A judge for whom letter case does not matter; `replies` are given first, each a status, headers and a body."""

    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    replies: list[tuple[int, dict[str, str], str]] = field(default_factory=list)

    def judge(self, question: dict[str, Any]) -> dict[str, Any]:
        if "answers" in question:
            folded = [answer.casefold() for answer in question["answers"]]
            return {"classes": [7 * folded.index(answer) - 3 for answer in folded]}
        return {"equal": [first.casefold() == second.casefold() for first, second in question["pairs"]]}


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
    monkeypatch.setattr(endpoint, "time", SimpleNamespace(sleep=waited.append, monotonic=time.monotonic))
    return waited


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    """And nothing is told of it when the tests end."""
    monkeypatch.setattr(kind.atexit, "register", lambda *_: None)
    kind._verdicts.cache_clear()


# Functions as judges: named as `package.module:function` below.
def by_letters(answers: list[str], row: dict[str, Any]) -> list[int]:
    return [sum(map(ord, answer.casefold())) for answer in answers]


def same_letters(first: str, second: str, row: dict[str, Any]) -> bool:
    return first.casefold() == second.casefold()


def next_to(first: str, second: str, row: dict[str, Any]) -> bool:
    """No equivalence: 1 is next to 2 and 2 to 3."""
    return abs(int(first) - int(second)) <= 1


def failing(answers: list[str], row: dict[str, Any]) -> list[int]:
    raise RuntimeError("no verdict today")


NO_FUNCTION = 3


@pytest.mark.parametrize("asks", ["group", "pairs"])
def test_a_service_is_asked_once_with_sorted_different_answers_and_the_columns_that_are_sent(service, asks):
    judge = Judge(url=service.url, asks=asks, send=("rubric",))
    answers = ["Rome", "PARIS", None, "paris", "Rome", "Paris"]
    assert judge.classes(answers, ROW) == [0, 1, None, 1, 0, 1]
    texts = ["PARIS", "Paris", "Rome", "paris"]
    asked = (
        {"answers": texts}
        if asks == "group"
        else {
            "pairs": [
                ["PARIS", "Paris"],
                ["PARIS", "Rome"],
                ["PARIS", "paris"],
                ["Paris", "Rome"],
                ["Paris", "paris"],
                ["Rome", "paris"],
            ]
        }
    )
    sent = {"problem": ROW["problem"], "rubric": ROW["rubric"]}
    assert service.asked == [{**asked, "row": sent}]
    verdicts = 1 if asks == "group" else 6
    assert (judge.cost.calls, judge.cost.cached) == (verdicts, 0)
    assert judge.classes(answers[::-1], ROW) == [0, 1, 0, None, 0, 1]
    assert len(service.asked) == 1
    assert (judge.cost.calls, judge.cost.cached) == (verdicts, verdicts)


def test_the_protocol_is_that_of_the_page(service):
    page = section((ROOT / "docs" / "concepts" / "kinds.md").read_text(encoding="utf-8"), "judge")
    group, classes, pairs, equal = map(json.loads, fenced(page, "json"))
    for asks, question, reply in (("group", group, classes), ("pairs", pairs, equal)):
        service.replies.append((200, {}, json.dumps(reply)))
        judge = Judge(url=service.url, asks=asks, send=("rubric",))
        assert judge.classes(["Rome", "Paris", "PARIS"], question["row"]) == [0, 1, 1]
        assert service.asked[-1] == question


def test_pairs_that_are_known_are_not_asked_again(service):
    judge = Judge(url=service.url, asks="pairs")
    judge.classes(["a", "b"], ROW)
    judge.classes(["a", "b", "c"], ROW)
    assert service.asked[1]["pairs"] == [["a", "c"], ["b", "c"]]
    judge.classes(["a", "b"], {"problem": "another"})
    assert len(service.asked) == 3


@pytest.mark.parametrize(
    "settings_of_one", [{"callable": f"{HERE}:by_letters"}, {"callable": f"{HERE}:same_letters", "asks": "pairs"}]
)
def test_a_function_is_a_judge(settings_of_one):
    judge = parse_kind({"name": "judge", **settings_of_one})
    assert judge.classes(["b", "A", "a", None, "B"], ROW) == [0, 1, 1, None, 0]
    assert judge.is_right("a", "A", ROW)
    assert not judge.is_right("b", "A", ROW)
    assert not judge.is_right(None, "A", ROW)


def test_one_answer_needs_no_judge():
    judge = Judge(callable=f"{HERE}:failing")
    assert judge.classes(["a", None, "a"], ROW) == [0, None, 0]
    assert judge.classes([None], ROW) == [None]
    assert judge.classes([], ROW) == []


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.none(), st.text("aAbBcC", min_size=1, max_size=2)), max_size=10), st.randoms())
@pytest.mark.parametrize("asks", ["group", "pairs"])
def test_the_order_of_the_rollouts_changes_numbers_alone(asks, answers, rng):
    function = "same_letters" if asks == "pairs" else "by_case"
    judge = Judge(callable=f"{HERE}:{function}", asks=asks)
    found = judge.classes(answers, ROW)
    for one, first in zip(found, answers, strict=True):
        assert (one is None) is (first is None)
        for other, second in zip(found, answers, strict=True):
            if first is not None and second is not None:
                assert (one == other) is (first.lower() == second.lower())
    places = list(range(len(answers)))
    rng.shuffle(places)
    moved = judge.classes([answers[place] for place in places], ROW)
    assert len(set(zip(moved, (found[place] for place in places), strict=True))) == len(set(found))


def by_case(answers: list[str], row: dict[str, Any]) -> list[int]:
    return [sorted({each.casefold() for each in answers}).index(answer.casefold()) for answer in answers]


# --- a judge that contradicts itself


def test_a_contradiction_is_refused_or_connected():
    near = {"callable": f"{HERE}:next_to", "asks": "pairs"}
    assert Judge(**near).classes(["1", "2", "8", "9"], ROW) == [0, 0, 1, 1]
    with pytest.raises(GraderError, match=r"says that '1' and '3' differ"):
        Judge(**near).classes(["1", "2", "3"], ROW)
    connected = Judge(**near, contradictions="connect")
    for seed in range(5):
        answers = ["1", "2", "3", "4", "7", "9", "8"]
        random.Random(seed).shuffle(answers)
        found = connected.classes(answers, ROW)
        assert Counter(found[answers.index(each)] for each in "1234").most_common() == [(found[answers.index("1")], 4)]
        assert len({found[answers.index(each)] for each in "789"}) == 1
        assert len(set(found)) == 2


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


@pytest.mark.parametrize(
    ("reply", "tries", "said"),
    [
        ((500, {}, "out of memory"), 3, r"status 500: out of memory \(tries: 3\)"),
        ((403, {}, "who are you"), 1, "status 403: who are you"),
        ((307, {"Location": "http://127.0.0.1:1/else"}, "moved"), 1, "status 307"),
        ((302, {"Location": "http://127.0.0.1:1/else"}, "moved"), 1, "status 302"),
        ((200, {}, "<html>"), 1, "not JSON"),
        ((200, {}, "\udcff".encode("utf-8", "replace").decode()), 1, "not JSON"),
        ((200, {"Content-Length": "100"}, "{}"), 3, r"cut off 98 bytes before its end \(tries: 3\)"),
        ((200, {}, '{"classes": [0]}'), 1, "`classes`: 2 whole numbers"),
        ((200, {}, '{"classes": [0, null]}'), 1, "`classes`: 2 whole numbers"),
        ((200, {}, '{"classes": [true, false]}'), 1, "`classes`: 2 whole numbers"),
        ((200, {}, '{"classes": [0.5, 1]}'), 1, "`classes`: 2 whole numbers"),
        ((200, {}, '{"classes": "01"}'), 1, "`classes`: 2 whole numbers"),
        ((200, {}, "[0, 1]"), 1, "`classes`: 2 whole numbers"),
        ((200, {}, '{"error": "no"}'), 1, "`classes`: 2 whole numbers"),
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


@pytest.mark.parametrize("body", ['{"equal": [1]}', '{"equal": []}', '{"equal": ["true"]}', '{"equal": [null]}'])
def test_a_pair_without_true_or_false_is_never_a_vote(service, body):
    service.replies.append((200, {}, body))
    with pytest.raises(GraderError, match="`equal`: 1 values, each true or false"):
        Judge(url=service.url, asks="pairs").classes(["a", "b"], ROW)


def test_nobody_at_the_address_is_said(waits):
    with serving() as service:
        url = service.url
    with pytest.raises(GraderError, match=r"127.0.0.1:\d+/judge gave no verdict: .*refused.*tries: 5"):
        Judge(url=f"{url}?key=hidden").classes(["a", "b"], ROW)
    assert len(waits) == 4


def test_a_service_that_drips_is_given_up(waits):
    with serving() as service:
        slow = Endpoint(service.url, 1e-9, 2)
        with pytest.raises(GraderError, match="tries: 2"):
            slow({"answers": ["a", "b"], "row": {}})


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


@pytest.mark.parametrize("token", [None, "", "two words", "a\nb", "é"])
def test_a_token_that_no_header_can_carry_is_refused_unseen(service, monkeypatch, token):
    monkeypatch.delenv("JUDGE_TOKEN", raising=False)
    if token is not None:
        monkeypatch.setenv("JUDGE_TOKEN", token)
    with pytest.raises(ConfigError, match="JUDGE_TOKEN") as said:
        Judge(url=service.url, token_variable="JUDGE_TOKEN").classes(["a", "b"], ROW)
    assert not token or token not in str(said.value)


# --- what is kept


def test_verdicts_are_kept_in_a_folder_for_other_processes(service, tmp_path):
    def judge(**more: Any) -> Judge:
        kind._verdicts.cache_clear()  # as another process would
        return Judge(url=service.url, cache=str(tmp_path / "kept"), **more)

    assert judge().classes(["a", "A", "b"], ROW) == [0, 0, 1]
    again = judge()
    assert again.classes(["b", "A", "a"], ROW) == [0, 1, 1]
    assert (again.cost.calls, again.cost.cached, len(service.asked)) == (0, 1, 1)
    judge(revision="2").classes(["a", "A", "b"], ROW)
    assert len(service.asked) == 2
    for file in (tmp_path / "kept").rglob("*.json"):
        file.write_text(file.read_text()[:-5])
    assert judge().classes(["a", "A", "b"], ROW) == [0, 0, 1]
    assert len(service.asked) == 3
    for file in (tmp_path / "kept").rglob("*.json"):
        file.write_text(json.dumps({"question": {"answers": ["x", "y", "z"]}, "verdict": [0, 1, 2]}))
    assert judge().classes(["a", "A", "b"], ROW) == [0, 0, 1]
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".json"]


def test_a_folder_that_takes_nothing_is_said(service, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(GraderError, match=r"answers\.cache"):
        Judge(url=service.url, cache=str(tmp_path / "file")).classes(["a", "b"], ROW)


# --- settings and rows


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({}, "under callable or under url"),
        ({"url": "http://a", "callable": "a:b"}, "not under both"),
        ({"url": "file:///etc/passwd"}, "must start with http"),
        ({"url": "http:///equal"}, "name a host"),
        ({"url": "http://me:secret@a/"}, "must not contain a user name or a password"),
        ({"callable": "no function"}, "package.module:function"),
        ({"url": "http://a", "tries": 0}, "tries"),
    ],
)
def test_settings_that_make_no_judge_are_refused(block, said):
    with pytest.raises(ConfigError, match=said):
        parse_kind({"name": "judge", **block})


@pytest.mark.parametrize("name", ["no_such_module:f", f"{HERE}:no_such", f"{HERE}:NO_FUNCTION"])
def test_a_function_that_is_not_there_is_said(name):
    with pytest.raises(ConfigError, match=name):
        Judge(callable=name).classes(["a", "b"], ROW)


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
    assert Judge(url=service.url).extract("so it is\nParis", ROW) == "Paris"


def test_a_kind_that_reads_may_have_settings_of_any_form(service):
    read = {"name": "json", "json_schema": {"type": "object"}}
    judge = parse_kind({"name": "judge", "url": service.url, "read": read})
    assert judge.classes(['{"a": 1}', '{"a": 1.0}'], ROW) == [0, 0]
    judge.classes(['{"a": 1}', '{"a": 2}'], ROW)
    assert judge.cost.calls == 1


def test_texts_are_read_as_the_kind_text_reads_and_compared_as_they_are_written(service):
    judge = Judge(url=service.url)
    response = "It is large.\nThe answer is **The Hague**, in the west."
    assert judge.extract(response, ROW) == parse_kind({"name": "text"}).extract(response, ROW)
    assert judge.classes(["The Hague", "the hague", "Hague", "The  Hague"], ROW)[0] == 0
    assert service.asked[-1]["answers"] == ["Hague", "The  Hague", "the hague"]
    judge.classes(["The Hague", "The Hague!"], ROW)
    assert service.asked[-1]["answers"] == ["The Hague", "The Hague!"]


def test_the_columns_of_a_row_are_those_that_are_sent_and_read(service):
    judge = parse_kind({"name": "judge", "url": service.url, "send": ["rubric"], "read": {"name": "sql"}})
    assert judge.row_columns() == {"rubric", "database", "db_id", "schema", "database_digest"}


def test_equal_settings_share_what_is_known(service):
    kinds: list[AnswerKind] = [Judge(url=service.url) for _ in range(3)]
    for each in kinds:
        each.classes(["a", "b"], ROW)
    assert len(service.asked) == 1


def test_many_threads_may_ask(service):
    judge = Judge(url=service.url)
    found: list[Any] = []
    ask: Callable[[int], None] = lambda seed: found.append(judge.classes(["a", "A", str(seed)], ROW))  # noqa: E731
    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[0, 0, 1]] * 8
    assert judge.cost.calls == 8


def test_how_a_judge_is_reached_is_not_part_of_what_it_is():
    one = Judge(url="http://a", revision="2")
    assert one.identity == Judge(url="http://a", revision="2", cache="kept", tries=1, seconds=2).identity
    assert one.identity != Judge(url="http://a", revision="3").identity


def test_what_the_reading_kind_calls_equal_is_asked_by_one_text_in_whatever_order(service):
    """So that an order of the rollouts costs no second verdict, and gives no other one."""
    judge = Judge(url=service.url, read={"name": "text"})
    answers = ["paris.", "Paris", "PARIS", "Rome", "rome!"]
    for order in permutations(answers):
        classes = judge.classes(order, ROW)
        assert [one == other for one, other in combinations(classes, 2)] == [
            one[0].casefold() == other[0].casefold() for one, other in combinations(order, 2)
        ]
    assert len(service.asked) == 1


def test_an_alias_that_the_reading_kind_knows_is_right_whatever_the_judge_says(service):
    judge = Judge(url=service.url, read={"name": "text"})
    row = {**ROW, "aliases": ["JFK"]}
    assert judge.is_right("JFK", "Kennedy", row)
    assert not judge.is_right("Nixon", "Kennedy", row)


def test_a_command_says_in_the_end_what_the_judge_cost(service, write_jsonl, tmp_path):
    """In three groups with different answers of four it is asked; in a second command what it said is known."""
    texts = [["Paris", "PARIS"], ["Rome", "rome"], ["Oslo", "oslo"], ["Bern", "Bern"]]
    rows = [{"id": str(at), "problem": f"Where is it, {at}?", "responses": each} for at, each in enumerate(texts)]
    block = json.dumps({"name": "judge", "url": service.url, "cache": str(tmp_path / "verdicts")})
    command = [sys.executable, "-m", "restrain_openrlhf.commands.main", "score", write_jsonl("rows.jsonl", rows)]
    for name, told in (("first", "asked for 3, known before 0"), ("second", "asked for 0, known before 3")):
        words = [*command, "--answers", block, "--out", tmp_path / f"{name}.jsonl"]
        done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=True)
        assert f"note: verdicts of the judge {service.url}: {told}." in done.stderr
    assert len(service.asked) == 3


def test_premise_goes_on_with_what_a_judge_said_before_it_died(service, write_jsonl, tmp_path, waits):
    """Every prompt's majority is right by the judge alone: no response is spelled as gold is."""
    texts = ["PARIS", "Paris", "paRis", "Rome"]
    rows = [{"id": str(at), "problem": f"Where is it, {at}?", "responses": texts, "answer": "paris"} for at in range(3)]
    block = json.dumps({"name": "judge", "url": service.url, "cache": str(tmp_path / "verdicts"), "tries": 2})
    words = ["premise", "--rollouts", write_jsonl("rows.jsonl", rows), "--answers", block, "--json"]
    answered = service.judge

    def dies(question):
        if len(service.asked) > 4:
            raise ConnectionAbortedError
        return answered(question)

    service.judge = dies
    assert "a guess would count as a vote" in refused(*words)
    kept = len(list((tmp_path / "verdicts").rglob("*.json")))
    assert kept == 4
    service.asked.clear()
    service.judge = answered
    kind._verdicts.cache_clear()  # as another process would
    found = json.loads(restrain(*words).stdout)
    assert (found["gold"]["pass_at_1"], found["gold"]["majority_right"]) == (3 / 4, 1.0)
    # A question of each group, and one of each different answer with gold.
    assert len(service.asked) + kept == 3 * 5
    assert json.loads(restrain(*words).stdout) == found
    assert len(service.asked) + kept == 3 * 5
