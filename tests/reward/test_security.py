"""The token: where it is read from, what a client may send, and what it does not look like."""

import base64

import pytest

pytest.importorskip("starlette", reason="needs the web stack: pip install restrain-openrlhf[serve]")

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.reward.security import TOKEN_VARIABLE, given_token, load_token


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("header", "token"),
    [
        (None, None),
        ("", None),
        ("Bearer abc", "abc"),
        ("bearer abc ", "abc"),
        (basic("user:abc"), "abc"),
        (basic("user:a:b"), "a:b"),
        (basic("abc:"), "abc"),
        (basic("abc"), "abc"),
        ("Basic ???", None),
        ("Basic /w==", None),
        ("Digest abc", None),
    ],
)
def test_what_a_header_says(header, token):
    assert given_token(header) == token


def test_the_file_goes_before_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert load_token(None) is None
    monkeypatch.setenv(TOKEN_VARIABLE, "e" * 20)
    assert load_token(None) == "e" * 20
    (tmp_path / "token").write_text("f" * 20 + "\n")
    assert load_token(tmp_path / "token") == "f" * 20


@pytest.mark.parametrize("token", ["", "short", "é" * 20, "a b\x00" * 10])
def test_what_is_no_token_is_refused(tmp_path, token):
    (tmp_path / "token").write_text(token)
    with pytest.raises(ConfigError, match="the token has"):
        load_token(tmp_path / "token")
