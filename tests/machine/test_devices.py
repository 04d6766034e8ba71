"""Which accelerator a process takes, by the stack that is installed and not by what it happens to see."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from restrain_openrlhf.errors import HostError
from restrain_openrlhf.machine import devices


@pytest.fixture(autouse=True)
def asked_anew():
    devices.detect.cache_clear()
    yield
    devices.detect.cache_clear()


def installed(monkeypatch, cpu_build):
    monkeypatch.setattr(devices, "version_of", {devices.CPU_BUILD: "0.29.0" if cpu_build else None}.get)


def test_the_cuda_stack_stays_cudas_where_a_process_sees_no_gpu(monkeypatch):
    installed(monkeypatch, cpu_build=False)
    assert (devices.detect().name, devices.detect().has_gpus) == ("cuda", True)


def test_the_cpu_build_takes_the_stand_in(monkeypatch):
    torch = pytest.importorskip("torch", reason="needs the training stack: make install")
    installed(monkeypatch, cpu_build=True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    device = devices.detect()
    assert (device.name, device.has_gpus) == ("cpu", False)
    assert device.environment["DS_ACCELERATOR"] == "cpu"


def test_the_stand_in_is_inert_where_cuda_is_there(monkeypatch):
    torch = pytest.importorskip("torch", reason="needs the training stack: make install")
    from restrain_openrlhf.machine import cpu

    installed(monkeypatch, cpu_build=True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(cpu, "install", lambda: pytest.fail("must do nothing where CUDA is present"))
    assert devices.detect().name == "cuda"
    cpu.install_in_vllm()


def test_a_missing_stand_in_is_an_error(monkeypatch):
    installed(monkeypatch, cpu_build=True)
    monkeypatch.setattr(devices, "is_cuda_stack", lambda: False)
    monkeypatch.setattr(devices, "entry_points", lambda group: ())
    with pytest.raises(HostError, match="Reinstall restrain-openrlhf"):
        devices.detect()


@pytest.mark.parametrize(
    ("option", "asked", "taken"),
    [
        ("enable_chunked_prefill", None, False),
        ("enable_chunked_prefill", False, False),
        ("enable_chunked_prefill", True, True),
        ("kv_cache_memory_bytes", None, 2**28),
        ("kv_cache_memory_bytes", 2**30, 2**30),
    ],
)
def test_without_cuda_vllm_takes_whole_prompts_and_a_small_cache_where_nobody_asks_otherwise(option, asked, taken):
    """With parts of prompts, a seed per request ends the engine."""
    pytest.importorskip("vllm", reason="needs the training stack: make install")
    device = devices.detect()
    if device.has_gpus:
        pytest.skip("needs a machine without CUDA: the stand-in is for that")
    device.install()
    from vllm import AsyncEngineArgs

    assert getattr(AsyncEngineArgs(model="m", **{option: asked}), option) == taken


def test_on_cpu_kernels_are_built_by_the_environments_own_ninja(monkeypatch):
    pytest.importorskip("vllm", reason="needs the training stack: make install")
    from restrain_openrlhf.machine.cpu import install

    own = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"/usr/bin:{own}:/bin")
    install()
    assert os.environ["PATH"] == f"{own}:/usr/bin:/bin"
    assert shutil.which("ninja") == str(own / "ninja")
