"""What `--help` says reaches the reader: rich swallows what stands in brackets as markup."""

import pytest
import typer
from typer.main import get_command

import restrain_openrlhf.commands.main as restrain
import test_time.cli as test_time_cli
from tests.command_line import call


def texts(app: typer.Typer):
    """(command, option, help) of every command, those of groups included, and of the command itself."""
    waiting = [("", get_command(app))]
    while waiting:
        name, command = waiting.pop()
        waiting += [(f"{name} {word}".strip(), one) for word, one in getattr(command, "commands", {}).items()]
        yield name, "", command.help
        yield from ((name, option.opts[0], getattr(option, "help", None)) for option in command.params)


@pytest.mark.parametrize("app", [restrain.app, test_time_cli.app])
def test_help_texts_are_whole(app):
    found = list(texts(app))
    assert len(found) > 15
    for command, option, text in found:
        assert "[" not in (text or ""), f"{command} {option}: a default belongs in show_default"


@pytest.mark.parametrize(("app", "main"), [(restrain.app, restrain.main), (test_time_cli.app, test_time_cli.main)])
def test_a_narrow_terminal_cuts_off_no_option_and_no_word(app, main, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    options = [(command, option) for command, option, _ in texts(app) if option.startswith("--")]
    shown = {command: call(main, *command.split(), "--help").stdout for command, _ in options}
    assert len(options) > 15
    assert [option for option in options if option[1] not in shown[option[0]]] == []
    # The metavar of a digest ends in the only ellipsis that is meant.
    assert [line for text in shown.values() for line in text.splitlines() if "…" in line.replace("sha256:…", "")] == []
