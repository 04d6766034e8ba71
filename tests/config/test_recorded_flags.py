"""The record of OpenRLHF's flags: the same as its parser, which the script that writes it alone asks."""

import pytest

from restrain_openrlhf.config.command_line import find_config, preset_names
from restrain_openrlhf.config.host_flags import host_flags, host_parser, record, to_arguments
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.machine.host_releases import RELEASES, installed
from tools.record_flags import TIMED, differences, installed_parser, record_text


@pytest.fixture
def host():
    pytest.importorskip("openrlhf", reason="needs the installed OpenRLHF")
    return installed_parser()


def test_the_record_is_the_installed_openrlhfs(host):
    assert differences(record_text(host)) == "", "Run python tools/record_flags.py"


def test_both_parsers_take_and_give_the_same(host):
    def flags(words, parser):
        found = vars(parser.parse_args(words))
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}

    defaults, recorded = flags([], host), flags([], host_parser())
    here = record(installed())
    others = {name: None for release in RELEASES.values() for name in record(release) if name not in here}
    assert recorded == {**defaults, **others, TIMED: None}
    kinds = {name: type(value) for name, value in {**defaults, **others, TIMED: None}.items()}
    assert {name: type(value) for name, value in recorded.items()} == kinds
    for name in preset_names():
        words = to_arguments(host_flags(load_run_config(find_config(name))))
        assert flags(words, host_parser()) == {**others, **flags(words, host)}
