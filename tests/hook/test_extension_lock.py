"""The lock of compiled extensions: one process at a time, and no longer than that process lives."""

import subprocess
import sys

import pytest

from restrain_openrlhf.machine import cuda
from restrain_openrlhf.machine.cuda import first_build

# Torch's own way through a build and a load, with a build that takes as long as it is told and leaves a file.
BUILD = """
import sys, time
from pathlib import Path
from torch.utils import cpp_extension
from restrain_openrlhf.machine.devices import detect
detect().install()
folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
def build(**_):
    print("builds", flush=True)
    time.sleep(seconds)
    (folder / "x.so").touch()
cpp_extension._write_ninja_file_and_build_library = build
cpp_extension._import_module_from_library = lambda *_: print("loads", (folder / "x.so").exists(), flush=True)
print("asks", flush=True)
cpp_extension.load("x", [], build_directory=str(folder))
"""


@pytest.fixture
def started():
    """Starts a program in a process of its own, which is killed after the test."""
    processes = []

    def start(program, *words):
        command = [sys.executable, "-c", program, *map(str, words)]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


def test_who_waited_for_a_build_that_was_killed_builds_itself(started, tmp_path):
    """Torch would load what is not there."""
    pytest.importorskip("torch", reason="needs the training stack: make install")
    first = started(BUILD, tmp_path, 600)
    assert [first.stdout.readline(), first.stdout.readline()] == ["asks\n", "builds\n"]
    second = started(BUILD, tmp_path, 0)
    assert second.stdout.readline() == "asks\n"
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(1)
    first.kill()
    assert second.communicate()[0] == "builds\nloads True\n"


@pytest.mark.parametrize(
    ("has_gpus", "no_compiler", "built", "waits"),
    [
        (False, "there is no nvcc", None, True),
        (False, "there is no nvcc", b"", True),
        (False, "there is no nvcc", b"ELF", False),
        (True, "there is no nvcc", None, False),
        (True, None, None, True),
        (True, None, b"ELF", False),
    ],
)
def test_a_training_says_that_it_compiles_where_it_will(tmp_path, monkeypatch, has_gpus, no_compiler, built, waits):
    """A build that was killed leaves an empty file; on GPUs without nvcc torch's own Adam is used."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setattr(cuda, "why_not_compiled", lambda: no_compiler)
    if built is not None:
        (tmp_path / "fused_adam").mkdir()
        (tmp_path / "fused_adam" / "fused_adam.so").write_bytes(built)
    assert bool(first_build(has_gpus)) is waits
