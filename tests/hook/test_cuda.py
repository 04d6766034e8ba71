"""The CUDA stack, with and without flash-attn's extension and an nvcc of torch's version."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec

import pytest

from restrain_openrlhf.config.this_machine import refuse_unsupported, why_unsupported
from restrain_openrlhf.errors import ConfigError, HostError
from restrain_openrlhf.machine import cuda, flash_attention
from restrain_openrlhf.machine.cuda import ProcessLock
from restrain_openrlhf.machine.flash_attention import BY_TORCH
from tests.conftest import ROOT
from tests.processes import program

FLAGS = {
    "ds.packing_samples": False,
    "train.dynamic_batch_enable": False,
    "ds.attn_implementation": "sdpa",
    "ds.ring_attn_size": 1,
    "ds.zero_stage": 2,
    "train.colocate_all": True,
    "train.async_enable": False,
    "vllm.sync_backend": "nccl",
}


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine without a toolkit, a torch built for CUDA 13.0; the function puts an nvcc there."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(cuda, "DEFAULT_HOME", tmp_path / "default")
    monkeypatch.setattr(cuda, "cuda_of_torch", lambda: "13.0")

    def nvcc(version, home=tmp_path, says="Cuda compilation tools, release {}, V{}.88"):
        return program(home / "bin", "nvcc", f"echo '{says.format(version, version)}'")

    return nvcc


@pytest.fixture
def extension(monkeypatch):
    """Says whether flash-attn is built."""
    return lambda there: monkeypatch.setattr(cuda, "has_extension", lambda: there)


def test_without_a_toolkit_sdpa_is_asked_for_and_flashinfer_is_not(machine, extension):
    extension(False)
    device = cuda.cuda()
    assert (device.name, device.has_gpus) == ("cuda", True)
    assert device.host_flags == {"ds.attn_implementation": "sdpa"}
    assert device.environment == {"VLLM_USE_FLASHINFER_SAMPLER": "0"}


def test_with_flash_attention_and_nvcc_openrlhf_runs_as_it_is(machine, extension):
    machine("13.0")
    extension(True)
    device = cuda.cuda()
    assert (device.host_flags, device.environment) == ({}, {})
    asked = {"ds.packing_samples": True, "ds.attn_implementation": "flash_attention_2", "ds.ring_attn_size": 2}
    refuse_unsupported(device, {**FLAGS, **asked, "train.dynamic_batch_enable": True})


@pytest.mark.parametrize("built", [True, False])
def test_weights_of_colocated_models_go_by_nccl_alone(built, machine, extension):
    extension(built)
    with pytest.raises(
        ConfigError, match=r"^vllm\.sync_backend is 'gloo', which this cuda stack does not support: with train\.col"
    ):
        refuse_unsupported(cuda.cuda(), {**FLAGS, "vllm.sync_backend": "gloo"})
    for apart in ({"train.colocate_all": False}, {"train.async_enable": True}):
        refuse_unsupported(cuda.cuda(), {**FLAGS, "vllm.sync_backend": "gloo", **apart})


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("ds.packing_samples", True),
        ("train.dynamic_batch_enable", True),
        ("ds.attn_implementation", "flash_attention_2"),
        ("ds.ring_attn_size", 2),
    ],
)
def test_what_needs_flash_attention_is_refused_with_the_command_that_builds_it(flag, value, machine, extension):
    extension(False)
    refuse_unsupported(cuda.cuda(), FLAGS)
    with pytest.raises(ConfigError, match=rf"^{flag} is .*flash-attn, which is not installed; `make install-flash`"):
        refuse_unsupported(cuda.cuda(), {**FLAGS, flag: value})


def test_torchs_own_kernel_packs_without_flash_attention(machine, extension):
    extension(False)
    packed = {"ds.packing_samples": True, "train.dynamic_batch_enable": True, "ds.attn_implementation": BY_TORCH}
    refuse_unsupported(cuda.cuda(), {**FLAGS, **packed})
    with pytest.raises(ConfigError, match=r"ring attention needs flash-attn"):
        refuse_unsupported(cuda.cuda(), {**FLAGS, **packed, "ds.ring_attn_size": 2})


@pytest.mark.parametrize(
    ("kernel", "missing"),
    [
        # As torch 2.11 and 2.12 have it, as 2.13 has it, and a torch without the module.
        ("def varlen_attn(q, *, scale=None, window_size=(-1, -1)): ...", ["enable_gqa"]),
        ("def varlen_attn(q, scale, *, window_size=(-1, -1), enable_gqa=False): ...", []),
        (None, ["scale", "window_size", "enable_gqa"]),
    ],
)
@pytest.mark.parametrize("built", [True, False])
def test_torchs_own_kernel_is_refused_where_it_does_not_take_what_it_is_given(
    kernel, missing, built, machine, extension, monkeypatch, tmp_path
):
    """The first step would end in a TypeError. The installed torch's version says nothing here."""
    extension(built)
    torch = tmp_path / "torch"
    (torch / "nn" / "attention").mkdir(parents=True)
    if kernel:
        (torch / "nn" / "attention" / "varlen.py").write_text(kernel)
    found = flash_attention.importlib.util.find_spec
    fake = ModuleSpec("torch", None, origin=str(torch / "__init__.py"))
    monkeypatch.setattr(
        flash_attention.importlib.util, "find_spec", lambda name: fake if name == "torch" else found(name)
    )
    reason = why_unsupported(cuda.cuda(), {**FLAGS, "ds.attn_implementation": BY_TORCH})
    assert bool(reason) is bool(missing), reason
    assert f"takes no {' and no '.join(missing)}" in (reason or "takes no ")
    refuse_unsupported(cuda.cuda(), FLAGS)


def test_cuda_home_goes_before_the_path_and_the_path_before_the_default(machine, tmp_path, monkeypatch):
    default = machine("13.1", tmp_path / "default")
    assert cuda.find_nvcc() == cuda.Nvcc(default, "13.1")
    on_path = machine("13.0")
    assert cuda.find_nvcc() == cuda.Nvcc(on_path, "13.0")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "own"))
    assert cuda.find_nvcc() is None
    own = machine("12.9", tmp_path / "own")
    assert cuda.find_nvcc() == cuda.Nvcc(own, "12.9")


def test_an_nvcc_that_says_nothing_is_not_used(machine):
    machine("13.0", says="hello")
    with pytest.raises(HostError, match="names no release"):
        cuda.find_nvcc()
    assert "names no release" in cuda.why_not_compiled()


def test_torchs_cuda_version_is_read_without_importing_torch():
    torch = pytest.importorskip("torch", reason="needs the training stack: make install")
    code = "import sys; from restrain_openrlhf.machine.cuda import cuda_of_torch;"
    code += "print(cuda_of_torch(), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == [str(torch.version.cuda), "False"]


def test_the_sampler_that_a_user_sets_stays(machine, monkeypatch):
    monkeypatch.setenv("VLLM_USE_FLASHINFER_SAMPLER", "1")
    assert cuda.environment() == {"VLLM_USE_FLASHINFER_SAMPLER": "1"}


def test_an_attention_on_the_command_line_stays(machine, extension):
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    from restrain_openrlhf.hook.train_ppo_ray import missing_words

    extension(False)
    assert missing_words(["--ds.attn_implementation", "eager"], cuda.cuda().host_flags) == []
    assert missing_words([], cuda.cuda().host_flags) == ["--ds.attn_implementation", "sdpa"]


STAND_IN = """
import sys
from restrain_openrlhf.machine import flash_attention
flash_attention.has_extension = lambda: {built}
flash_attention.provide_flash_attention()
if "flash_attn" in sys.modules:
    from flash_attn.utils.distributed import all_gather
    try:
        all_gather()
    except RuntimeError as error:
        print(error)
"""


@pytest.mark.parametrize(("built", "said"), [(True, ""), (False, "make install-flash")])
def test_the_stand_in_goes_where_flash_attention_is_not_built_and_nowhere_else(built, said):
    """In a process of its own: modules stay."""
    code = STAND_IN.format(built=built)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert said in done.stdout
    assert bool(done.stdout) == bool(said)


ADAM = {"type": "AdamW", "params": {"lr": 1e-6, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.0}}
TORCHS = {"type": "AdamW", "params": {**ADAM["params"], "torch_adam": True, "fused": True}}
MUON = {"type": "Muon", "params": {"lr": 1e-3}}


@pytest.mark.parametrize(
    ("wanted", "reason", "given"),
    [(ADAM, None, ADAM), (ADAM, "no nvcc", TORCHS), (MUON, "no nvcc", MUON), (None, "no nvcc", None)],
)
def test_torchs_adam_stands_in_for_deepspeeds_where_that_cannot_be_compiled(wanted, reason, given, monkeypatch):
    monkeypatch.setattr(cuda, "why_not_compiled", lambda: reason)
    host = {"bf16": {"enabled": True}, **({"optimizer": wanted} if wanted else {})}
    config = cuda.torch_adam_without_nvcc(lambda **_: host, None, (), {"optim_dict": wanted})
    assert (config["bf16"], config.get("optimizer")) == ({"enabled": True}, given)
    assert "fused" not in ADAM["params"]


# Keeps the lock until it is killed.
TAKE = """
import sys, time
from restrain_openrlhf.machine.cuda import ProcessLock
print(ProcessLock(sys.argv[1]).try_acquire(), flush=True)
time.sleep(600)
"""


def test_the_lock_ends_with_its_process(tmp_path):
    """Whoever waits for a build that is killed builds itself; what torch's own lock has left holds nobody up."""
    path = tmp_path / "lock"
    path.touch()
    command = [sys.executable, "-c", TAKE, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first, ThreadPoolExecutor(1) as pool:
        assert first.stdout.readline() == "True\n"
        waiting = pool.submit(ProcessLock(str(path)).try_acquire)
        with pytest.raises(TimeoutError):
            waiting.result(1)
        first.kill()
        assert waiting.result(30)
