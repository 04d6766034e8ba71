"""The record of OpenRLHF's flags: the same as its parser, and read by nothing that trains."""

import pytest

from restrain_openrlhf.config.command_line import find_config, preset_names
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.hook.host_flags import host_flags, host_parser, parse, to_arguments
from restrain_openrlhf.hook.recorded_flags import FILE, TIMED, record_text, recorded_parser
from tests.test_borders import PACKAGE, imports, modules


@pytest.fixture
def host():
    pytest.importorskip("openrlhf", reason="needs the installed OpenRLHF")
    return host_parser()


@pytest.mark.host
def test_the_record_is_the_installed_openrlhfs():
    pytest.importorskip("openrlhf", reason="needs the installed OpenRLHF")
    again = "python -m restrain_openrlhf.hook.recorded_flags"
    assert FILE.read_text(encoding="utf-8") == record_text(host_parser()), f"Write it anew: {again}"


@pytest.mark.host
def test_both_parsers_take_and_give_the_same(host):
    def flags(words, parser):
        found = vars(parse(words, parser))
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}

    defaults, recorded = flags([], host), flags([], recorded_parser())
    assert recorded == {**defaults, TIMED: None}
    assert [(type(value), name) for name, value in recorded.items() if name != TIMED] == [
        (type(value), name) for name, value in defaults.items() if name != TIMED
    ]
    for name in preset_names():
        wanted = host_flags(load_run_config(find_config(name)))
        words = to_arguments(wanted, recorded_parser())
        assert words == to_arguments(wanted, host)
        assert flags(words, recorded_parser()) == flags(words, host)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--actor.adam.lr", "fast"], "invalid float value: 'fast'"),
        (["--algo.kl.estimator", "k9"], "invalid choice: 'k9'"),
        (["--actor.adam.betas", "0.9"], "expected 2 arguments"),
        (["--no.such.flag", "1"], "unrecognized arguments"),
    ],
)
def test_the_record_refuses_what_openrlhf_refuses(words, message):
    with pytest.raises(ConfigError, match=message):
        parse(words, recorded_parser())


def test_nothing_that_trains_reads_the_record():
    readers = {
        str(path.relative_to(PACKAGE))
        for path in modules(".")
        if "restrain_openrlhf.hook.recorded_flags" in imports(path)
    }
    # Of cli/train.py, `show` alone: it prints a command and starts nothing.
    assert readers == {"cli/train.py", "k8s/experiment.py", "slurm/job.py"}
