"""The record of OpenRLHF's flags: the same as its parser, which the script that writes it alone asks."""

import pytest

from restrain_openrlhf.config.command_line import find_config, preset_names
from restrain_openrlhf.config.host_flags import host_flags, host_parser, record, to_arguments
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.errors import HostError
from restrain_openrlhf.machine.host_releases import RELEASES, installed
from tests.command_line import restrain
from tools.record_flags import TIMED, differences, installed_parser, record_text


@pytest.fixture
def host():
    pytest.importorskip("openrlhf", reason="needs the installed OpenRLHF")
    return installed_parser()


@pytest.mark.host
def test_the_record_is_the_installed_openrlhfs(host):
    assert differences(record_text(host)) == "", "Run python tools/record_flags.py"


@pytest.mark.host
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


@pytest.mark.parametrize("command", ["train", "show", "adapt"])
def test_another_openrlhf_is_refused_before_anything_else(command, monkeypatch, tmp_path):
    from restrain_openrlhf.config import host_flags
    from restrain_openrlhf.hook.launch import train
    from restrain_openrlhf.machine import host_releases

    monkeypatch.setattr(host_releases, "version", lambda _name: "0.12.0")
    monkeypatch.setattr(host_flags, "is_installed", lambda: True)
    monkeypatch.setattr(train, "check_run", lambda *_: pytest.fail("it was looked at further"))
    started = {"train": train.train, "adapt": train.check_flags}
    if command == "show":
        done = restrain("show", "cpu/demo")
        assert (done.returncode, "OpenRLHF 0.12.0 is installed" in " ".join(done.stderr.split())) == (2, True)
    else:
        with pytest.raises(HostError, match=r"OpenRLHF 0\.12\.0 is installed"):
            started[command](load_run_config(find_config("cpu/demo"), {"run_dir": str(tmp_path / "run")}))
    assert list(tmp_path.iterdir()) == []
