"""`restrain serve`: what a wrong configuration, option or token gets."""

import logging
import resource

import pytest

from tests.command_line import refused

pytest.importorskip("uvicorn", reason="needs the web stack: pip install restrain-openrlhf[service]")


@pytest.fixture(autouse=True)
def process_of_its_own(monkeypatch):
    """A service takes over its process's log and raises its limit of open files; this process goes on after it."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.root.level)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


GOOD = "method: {name: ttrl}\nservice: {group_size: 4, end_of_text: []}\n"
GATHERS = "service: {group_size: 4, end_of_text: x"


TTRL = "method: {name: ttrl}\n"
METHOD = "method: {{name: {}}}\nservice: {{group_size: 4, end_of_text: x}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TTRL + "service: {group_size: 4}", "service.end_of_text is missing"),
        (TTRL, "service.group_size is missing"),
        (TTRL + "service: 3", "service is 3: input should be a valid dictionary"),
        (TTRL + GATHERS + ", timing: {hold: 180}}", "service.timing.hold is 180: input should be less than 180"),
        (
            TTRL + GATHERS + ", limits: {pendin: 9}}",
            "unknown key 'service.limits.pendin'. Did you mean 'service.limits.pending'?",
        ),
        (TTRL + "service: {group_size: 4, end_of_text: ''}", "end_of_text"),
        (TTRL + "server: {}", "Did you mean 'service'?"),
        (METHOD.format("restrain"), "no reference was given"),
        (METHOD.format("restrain, kappa: 5, prompt_weight: none"), "penalises even a unanimous group of 4 rollouts"),
        (METHOD.format("ettrl"), "'ettrl' needs entropies of tokens, which a service does not provide"),
        (METHOD.format("grpo_gold"), "'grpo_gold' needs gold answers, which a service does not provide"),
    ],
)
def test_a_wrong_configuration_is_refused(tmp_path, text, message):
    (tmp_path / "service.yaml").write_text(f"{text}\n")
    assert message in refused("serve", "--config", tmp_path / "service.yaml")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--host", "203.0.113.1"], "--host 203.0.113.1 --port 8000: the server cannot listen there"),
        (["--host", "no such host"], "the server cannot listen there"),
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
