"""The lock of compiled extensions: one process at a time, and no longer than that process lives."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from restrain_openrlhf.machine import cuda
from restrain_openrlhf.machine.cuda import ProcessLock, first_build

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
