"""Every `restrain` and `test-time` command that a page prints is accepted: its words, its options, its presets."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import test_time.cli
from restrain_openrlhf.commands import main
from restrain_openrlhf.config.command_line import preset_names
from tests.conftest import ROOT

PROGRAMS = {"restrain": typer.main.get_command(main.app), "test-time": typer.main.get_command(test_time.cli.app)}
# What was removed is named where it is said what does its job now.
OF_THE_PAST = {"CHANGELOG.md", "0009-what-was-removed.md"}
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if path.name not in OF_THE_PAST | {"commands.md"}
)
LINE = re.compile(r"^ {4}((?:restrain|test-time) .+)$", re.MULTILINE)
COMMAND = re.compile(r"[a-z][a-z0-9-]*")
INLINE = re.compile(r"`((?:restrain|test-time) [^`]+)`")
# Folders of presets, by which a word is known to be a preset's name.
FAMILIES = {name.partition("/")[0] for name in preset_names()}


def printed(text: str) -> Iterator[str]:
    """The commands of a page: indented lines, with those that they continue on, and those within sentences."""
    for line in LINE.findall(re.sub(r"\\\n\s+", " ", text)):
        yield from line.partition(" # ")[0].split("; ")
    yield from (" ".join(found.split()) for found in INLINE.findall(text))


def refusals(command: str) -> list[str]:
    """What is wrong with a command; nothing is started."""
    words = shlex.split(re.sub(r"[\[\]…;]", " ", command), comments=True)
    found = PROGRAMS[words.pop(0)]
    while hasattr(found, "commands") and words and COMMAND.fullmatch(words[0]):
        if words[0] not in found.commands:
            return [f"{command}: no such command"]
        found = found.commands[words.pop(0)]
    options = {"--help", "-h"}.union(*([*each.opts, *each.secondary_opts] for each in found.params))
    typed = [word.partition("=")[0] for word in words if word.startswith("--")]
    return [
        *(f"{command}: no such option: {word}" for word in typed if word not in options),
        *(f"{command}: there is no preset {word}" for word in words if missing(word)),
    ]


def missing(word: str) -> bool:
    family, slash, rest = word.partition("/")
    return bool(slash) and family in FAMILIES and bool(re.fullmatch(r"[\w./-]+", rest)) and word not in preset_names()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_a_page_prints_is_a_command(path: Path):
    assert [each for command in printed(path.read_text(encoding="utf-8")) for each in refusals(command)] == []


def test_many_commands_are_found():
    assert sum(len(list(printed(path.read_text(encoding="utf-8")))) for path in PAGES) > 150


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("restrain trian CONFIG", "no such command"),
        ("restrain train CONFIG --seeed 3", "no such option: --seeed"),
        ("restrain data prepare dapo14k --ouut x", "no such option: --ouut"),
        ("restrain train dapo14k/qwen3-4b-base/restrian", "there is no preset"),
    ],
)
def test_a_command_that_is_none_is_seen(command, reason):
    (refusal,) = refusals(command)
    assert reason in refusal
