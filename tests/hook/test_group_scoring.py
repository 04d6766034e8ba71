"""Groups scored by a service have the scores made in process, bit for bit; a service that stays away is an error."""

import asyncio
import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("aiohttp", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from restrain_openrlhf.config.yaml_file import HookConfig  # noqa: E402
from restrain_openrlhf.errors import ConfigError, ScoreServiceError  # noqa: E402
from restrain_openrlhf.hook.rollout import group_scoring  # noqa: E402
from restrain_openrlhf.hook.rollout.group_columns import columns, vote_columns  # noqa: E402
from restrain_openrlhf.hook.rollout.group_scoring import InProcess, ScoreService, scoring_of  # noqa: E402
from restrain_openrlhf.hook.run_log import kept_group  # noqa: E402
from restrain_openrlhf.method import build, parse_settings  # noqa: E402
from restrain_openrlhf.reference.artifact import NeededReference  # noqa: E402
from restrain_openrlhf.scoring import GroupScorer, score_whole_group  # noqa: E402
from restrain_openrlhf.scoring.wire import GroupReply, GroupRequest, ScoreReply, ScoreRequest  # noqa: E402

METHOD = {"name": "restrain", "kappa": 2, "prompt_weight": "online"}


def scorer(method=METHOD):
    return GroupScorer(build(parse_settings(method)))


def group(answers=("2", "2", "3", None), **rest):
    texts = ["none" if answer is None else rf"\boxed{{{answer}}}" for answer in answers]
    return GroupRequest(prompt="1+1=", responses=[{"text": text, "finished": True} for text in texts], **rest)


def score_reply(body):
    """What a service answers."""
    groups = ScoreRequest.model_validate_json(body).groups
    replies = [GroupReply.of(score_whole_group(scorer(), each)) for each in groups]
    return ScoreReply(groups=replies).model_dump_json().encode()


@contextlib.contextmanager
def service(*replies, port=0):
    """Gives these replies in turn, (status, body or function of the request's body), the last for ever."""
    left, seen = list(replies), []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.path, self.headers.get("Authorization"), body))
            status, reply = left.pop(0) if len(left) > 1 else left[0]
            if status is None:
                self.connection.close()
                return
            reply = reply(body) if callable(reply) else reply
            self.send_response(status)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()


def asked(url, **options):
    scoring = ScoreService(url, parse_settings(METHOD).model_dump(mode="json"), **options)
    return GroupReply.of(asyncio.run(scoring.score(group())))


def in_process():
    return GroupReply.of(asyncio.run(InProcess(scorer()).score(group())))


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(group_scoring, "FIRST_PAUSE", 0.01)


def test_a_services_score_is_that_made_in_process_bit_for_bit():
    with service((200, score_reply)) as (url, seen):
        assert asked(url, token="t" * 20) == in_process()
    ((path, authorization, body),) = seen
    assert path == "/v1/score"
    assert authorization == "Bearer " + "t" * 20
    assert ScoreRequest.model_validate_json(body).method == parse_settings(METHOD).model_dump(mode="json")


@settings(max_examples=100, deadline=None)
@given(
    answers=st.lists(st.sampled_from(["1", "2", "3", "4", None]), min_size=4, max_size=4),
    entropies=st.lists(st.floats(0.001, 20), min_size=4, max_size=4),
    method=st.sampled_from([METHOD, {"name": "ettrl", "trees": 1, "forks": 1, "branches": 3}]),
)
def test_the_wire_changes_no_bit(answers, entropies, method):
    request = group(answers, entropies=tuple(entropies) if method["name"] == "ettrl" else None)
    received = GroupRequest.model_validate_json(request.model_dump_json())
    assert received == request
    sent = GroupReply.of(score_whole_group(scorer(method), received))
    arrived = GroupReply.model_validate_json(sent.model_dump_json()).score()
    direct = score_whole_group(scorer(method), request)
    assert GroupReply.of(arrived) == sent == GroupReply.of(direct)
    assert columns(request, arrived) == columns(request, direct)
    assert vote_columns(request, arrived) == vote_columns(request, direct)
    assert kept_group(1, 0, request, arrived) == kept_group(1, 0, request, direct)


@pytest.mark.parametrize("fault", [(503, b"stopping"), (500, b"oops"), (502, b"<html>"), (429, b""), (None, b"")])
def test_a_service_that_is_away_for_a_while_costs_nothing(fault):
    with service(fault, fault, (200, score_reply)) as (url, seen):
        assert asked(url) == in_process()
    assert len(seen) == 3


@pytest.fixture
def unused_port():
    with service((200, b"")) as (url, _):
        pass
    return int(url.rsplit(":", 1)[1])


def test_a_service_that_stays_away_is_one_clear_error(unused_port):
    with pytest.raises(ScoreServiceError, match=r"gave no answer for 0\.2 s; the last attempt found: Cannot connect"):
        asked(f"http://127.0.0.1:{unused_port}", patience=0.2)
    with (
        service((503, b"stopping")) as (url, _),
        pytest.raises(ScoreServiceError, match="the last attempt found: status 503: stopping"),
    ):
        asked(url, patience=0.2)


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (401, b"A token is needed", "answers 401: A token is needed"),
        (409, b"kappa is 3, not 2", "answers 409: kappa is 3, not 2"),
        (404, b"no such path", "answers 404: no such path"),
        (200, b"<html>a proxy's page</html>", "replied with something other than scores"),
        (200, b'{"groups": []}', "replied with something other than scores"),
        (200, b"\xff\xfe", "replied with something other than scores"),
    ],
)
def test_a_refusal_is_an_error_at_once(status, body, message):
    with service((status, body)) as (url, seen), pytest.raises(ScoreServiceError, match=message):
        asked(url)
    assert len(seen) == 1


def test_where_groups_are_scored_follows_from_the_settings(monkeypatch):
    monkeypatch.setenv("RESTRAIN_TOKEN", "secret-token-of-the-service")
    here = scoring_of(HookConfig(method=parse_settings(METHOD)))
    there = scoring_of(HookConfig(method=parse_settings(METHOD), service="http://reward:8000"))
    assert isinstance(here, InProcess)
    assert (there.url, there.token) == ("http://reward:8000", "secret-token-of-the-service")
    monkeypatch.setenv("RESTRAIN_TOKEN", "short")
    with pytest.raises(ConfigError, match="the token has 5 characters"):
        scoring_of(HookConfig(method=parse_settings(METHOD), service="http://reward:8000"))


def try_service(settings, url, patience=60.0):
    """As a run does before it starts: a group of 4 rollouts of one prompt."""
    trial = ScoreService.of(HookConfig(method=settings), url, patience)
    trial.check(build(settings), "1+1=", 4, NeededReference())


def test_a_service_that_would_refuse_or_is_not_there_stops_the_run_before_it_starts(unused_port):
    settings = parse_settings(METHOD)
    with (
        service((409, b"method.kappa is 2")) as (url, _),
        pytest.raises(ScoreServiceError, match=r"409: method\.kappa"),
    ):
        try_service(settings, url)
    with pytest.raises(ScoreServiceError, match=r"gave no answer for 0\.2 s"):
        try_service(settings, f"http://127.0.0.1:{unused_port}", 0.2)
