"""The token: where it is read from, how a client sends it, and where it never appears."""

import base64

import httpx
import pytest

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.scoring.service.requests import given_token
from restrain_openrlhf.scoring.service.service_config import TOKEN_VARIABLE, load_token

pytestmark = pytest.mark.timeout(300)

TOKEN = "a-token-of-the-tests-0123456789"


def basic(text: str) -> dict[str, str]:
    return bearer(base64.b64encode(text.encode()).decode(), "Basic")


def bearer(text: str, scheme: str = "Bearer") -> dict[str, str]:
    return {"Authorization": f"{scheme} {text}"}


@pytest.fixture(scope="module")
def service(standing, tmp_path_factory):
    """The file goes before the environment."""
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(TOKEN + "\n")
    return standing(token="e" * 20, options=("--token-file", str(file)))


# Whoever may ask is told that the prompt is not in the query.
ASKED = {"query": ["other"], "prompts": ["p"], "labels": [""]}
RIGHT = [basic(f"user:{TOKEN}"), basic(f"{TOKEN}:"), basic(f"ü:{TOKEN}")]
NO_COLON = [basic(TOKEN), basic("user")]
NOT_BASE64 = [bearer("???", "Basic"), bearer("/w==", "Basic"), bearer(TOKEN, "Basic")]
NOTHING = [{}, {"Authorization": ""}, {"Authorization": "Bearer"}, {"Authorization": "Basic"}, basic(":")]
STRANGE = [{"Authorization": "Bearer é".encode("latin-1")}, {"Authorization": b"Basic \xff\xfe"}]
OTHERS = [bearer(TOKEN), basic(f"user:{'e' * 20}"), basic(f"user:{TOKEN}x"), bearer(TOKEN, "Digest")]


def test_whoever_sends_the_token_may_ask(service):
    for headers in RIGHT:
        assert service.http.post("/get_reward", json=ASKED, headers=headers).status_code == 409, headers
    host = service.url.removeprefix("http://")
    for user in (f"user:{TOKEN}", TOKEN):
        assert httpx.post(f"http://{user}@{host}/get_reward", json=ASKED, timeout=60).status_code == 409, user


def test_nobody_else_may(service):
    for headers in [*NOTHING, *NO_COLON, *NOT_BASE64, *STRANGE, *OTHERS]:
        reply = service.http.post("/get_reward", json=ASKED, headers=headers)
        assert reply.status_code == 401, headers
        assert "basic" in reply.headers["www-authenticate"].lower()
    assert not [event for event in service.events() if event["level"] == "error"]


def test_probes_and_metrics_are_open_and_the_token_appears_nowhere(service):
    for headers in (basic(f"user:{TOKEN}"), basic(f"{TOKEN}:x")):
        assert TOKEN not in service.http.post("/get_reward", json=ASKED, headers=headers).text
    for path in ("/healthz", "/readyz", "/metrics"):
        reply = service.http.get(path)
        assert reply.status_code == 200, path
        assert TOKEN not in reply.text
    assert TOKEN not in service.log.read_text()


def test_a_token_may_hold_a_colon():
    assert given_token(basic("user:a:b")["Authorization"]) == "a:b"


def test_without_a_file_the_environment_has_the_token(monkeypatch, tmp_path):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert load_token(None) is None
    monkeypatch.setenv(TOKEN_VARIABLE, "e" * 20)
    assert load_token(None) == "e" * 20
    (tmp_path / "token").write_text("g" * 20 + "\n")
    assert load_token(tmp_path / "token") == "g" * 20


@pytest.mark.parametrize("token", ["", "short", "é" * 20, "a b\x00" * 10])
def test_what_is_no_token_is_refused(tmp_path, token):
    (tmp_path / "token").write_text(token)
    with pytest.raises(ConfigError, match="the token has"):
        load_token(tmp_path / "token")
