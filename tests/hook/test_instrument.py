"""The contract with the installed host, and switching the hook on and off."""

import subprocess
import sys
from importlib import metadata

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from restrain_openrlhf.devices import detect  # noqa: E402
from restrain_openrlhf.errors import HostError  # noqa: E402
from restrain_openrlhf.hook import contract  # noqa: E402
from restrain_openrlhf.hook.contract import HostMethod  # noqa: E402


def in_a_process(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def test_the_installed_host_is_what_the_hook_was_written_for():
    detect().install()
    contract.check_all()


def test_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(contract, "version", lambda _name: "0.12.0")
    with pytest.raises(HostError, match=r"OpenRLHF 0\.12\.0 is installed; the hook was written for 0\.11\.2"):
        contract.check_version()


def test_no_host_is_refused(monkeypatch):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(contract, "version", absent)
    with pytest.raises(HostError, match="not installed"):
        contract.check_version()


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (HostMethod("openrlhf.utils.config", "hierarchize", ("args", "more")), "takes \\('args',\\)"),
        (HostMethod("openrlhf.utils.config", "flatten", ()), "has no flatten"),
    ],
)
def test_a_changed_signature_is_named(method, message):
    with pytest.raises(HostError, match=message):
        contract.check_methods([method])


INSTALLED = """
from restrain_openrlhf.devices import detect
detect().install()
from restrain_openrlhf.hook.instrument import install, uninstall, is_active
{before}
install(); install()
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker as Maker
from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer as Actor
from openrlhf.trainer.ppo_trainer import PPOTrainer
from wrapt import FunctionWrapper
wrapped = lambda method: isinstance(method, FunctionWrapper)
hooked = [wrapped(Maker.__dict__["make_experience_batch"]), wrapped(Actor.__dict__["training_step"]),
          PPOTrainer.__ray_metadata__.modified_class.train_step.__module__ == "restrain_openrlhf.hook.trainer"]
twice = wrapped(getattr(Actor.__dict__["training_step"], "__wrapped__", None))
uninstall()
left = [wrapped(Maker.__dict__["make_experience_batch"]), wrapped(Actor.__dict__["training_step"]),
        PPOTrainer.__ray_metadata__.modified_class.train_step.__module__ == "restrain_openrlhf.hook.trainer"]
print(hooked, twice, left, is_active())
"""


@pytest.mark.parametrize("before", ["", "import openrlhf.trainer.ppo_trainer, openrlhf.trainer.ray.ppo_actor"])
def test_the_hook_wraps_whatever_the_order_of_imports_and_undoes_it(before):
    expected = "[True, True, True] False [False, False, False] False"
    assert in_a_process(INSTALLED.format(before=before)) == expected


def test_installing_imports_nothing_of_the_host():
    script = (
        "import sys; from restrain_openrlhf.hook.instrument import install; install(); "
        "print([name for name in ('torch', 'ray', 'openrlhf.trainer') if name in sys.modules])"
    )
    assert in_a_process(script) == "[]"
