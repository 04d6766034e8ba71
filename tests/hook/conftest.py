"""The hook in this process, and off again after the test."""

from importlib.util import find_spec

import pytest

from restrain_openrlhf.machine.devices import detect

# Before any test here imports the host: what the accelerator needs comes first.
if find_spec("openrlhf"):
    detect().install()


@pytest.fixture
def hooked(monkeypatch):
    """Switch the hook on with these settings; Ray's calls are made at once."""
    pytest.importorskip("openrlhf", reason="needs the training stack (make install)")
    from restrain_openrlhf.config.yaml_file import HookConfig
    from restrain_openrlhf.hook.install import instrument
    from restrain_openrlhf.hook.install.environment import to_environment
    from restrain_openrlhf.machine.patching import expect_no_more
    from restrain_openrlhf.method import parse_settings
    from tests.hook.in_process import ray_at_once

    def hooked(method, **settings):
        made = HookConfig(method=parse_settings(method), **settings)
        for name, value in to_environment(made).items():
            monkeypatch.setenv(name, value)
        instrument.install()

    ray_at_once(monkeypatch)
    yield hooked
    expect_no_more(instrument.CONTRACT)


@pytest.fixture
def agent_alone(monkeypatch, tmp_path):
    """The agent in an OpenRLHF that was not started by our entry point, with this configuration file."""
    pytest.importorskip("openrlhf", reason="needs the training stack (make install)")
    from tests.hook.in_process import ray_at_once

    def agent_alone(text):
        path = tmp_path / "restrain.yaml"
        path.write_text(text)
        monkeypatch.setenv("RESTRAIN_CONFIG", str(path))

    ray_at_once(monkeypatch)
    return agent_alone
