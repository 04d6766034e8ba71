"""The numbers of system calls against the kernel's own headers."""

import platform
import re
from pathlib import Path

import pytest

from restrain_openrlhf.machine.sandbox.system_calls import AARCH64, X86_64, instructions

HEADERS = {
    "x86_64": (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), X86_64),
    "aarch64": (Path("/usr/include/asm-generic/unistd.h"), AARCH64),
}


@pytest.mark.parametrize("machine", HEADERS)
def test_numbers_are_the_kernels(machine):
    path, ours = HEADERS[machine]
    if not path.is_file():
        pytest.skip(f"needs {path}: apt-get install linux-libc-dev")
    found = re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)$", path.read_text(), re.MULTILINE)
    kernels = {name: int(number) for name, number in found}
    assert {name: kernels.get(name, kernels.get(name.removeprefix("new"))) for name in ours} == ours


def test_a_machine_without_numbers_is_refused():
    with pytest.raises(OSError, match="riscv64"):
        instructions("riscv64")
    assert instructions(platform.machine())
