"""`restrain serve`: what a wrong configuration, store or token gets."""

import logging
import resource

import pytest

from tests.commands import refused

pytest.importorskip("fastapi", reason="needs the web stack: pip install restrain-openrlhf[serve]")


@pytest.fixture(autouse=True)
def process_of_its_own(monkeypatch):
    """A service takes over its process's log and raises its limit of open files; this process goes on after it."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.root.level)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


GOOD = "method: {name: ttrl}\nservice: {group_size: 4, end_of_text: []}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("method: {name: ttrl}\n", "service: the block is missing or empty"),
        ("method: {name: ttrl}\nservice: {group_size: 4}\n", "give either model"),
        ("method: {name: ttrl}\nservice: {group_size: 4, model: m, end_of_text: x}\n", "give either model"),
        ("method: {name: ttrl}\nservice: {group_size: 1, end_of_text: x}\n", "group_size: Input should be greater"),
        ("method: {name: ttrl}\nservice: {group_size: 4, end_of_text: x, timing: {hold: 180}}\n", "timing.hold"),
        ("method: {name: ttrl}\nservice: {group_size: 4, end_of_text: x, speed: 9}\n", "speed: Extra inputs"),
        ("method: {name: ttrl}\nserver: {}\n", "Did you mean 'service'?"),
        ("method: {name: restrain}\nservice: {group_size: 4, end_of_text: x}\n", "no reference was given"),
        ("method: {name: ttrl}\nservice: {group_size: 4, model: /absent}\n", "must be a Hugging Face model's folder"),
    ],
)
def test_a_wrong_configuration_is_refused(tmp_path, text, message):
    (tmp_path / "service.yaml").write_text(text)
    assert message in refused("serve", "--config", tmp_path / "service.yaml")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--store", "postgres://x"], "--store: must be memory, or a redis://"),
        (["--host", "203.0.113.1"], "--host 203.0.113.1 --port 8000: cannot be listened on"),
        (["--port", "8021", "--probe-port", "8021"], "--probe-port 8021: is --port already"),
        (["--host", "203.0.113.1", "--probe-port", "8001"], "--host 203.0.113.1 --port 8000: cannot be listened on"),
        (["--token-file", "/absent"], "--token-file /absent: cannot be read"),
    ],
)
def test_a_wrong_option_is_refused(tmp_path, words, message):
    (tmp_path / "service.yaml").write_text(GOOD)
    assert message in refused("serve", "--config", tmp_path / "service.yaml", *words)


def test_a_short_token_is_refused_and_not_repeated(tmp_path):
    (tmp_path / "service.yaml").write_text(GOOD)
    (tmp_path / "token").write_text("sesame")
    message = refused("serve", "--config", tmp_path / "service.yaml", "--token-file", tmp_path / "token")
    assert "the token has 6 characters" in message
    assert "sesame" not in message


def test_an_absent_configuration_is_named(tmp_path):
    assert "no such file" in refused("serve", "--config", tmp_path / "absent.yaml")
