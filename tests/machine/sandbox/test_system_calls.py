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


# Processes, files, sockets, signals, other processes' memory, shared memory, keys, namespaces, the kernel's own tools.
HARMFUL = """
fork vfork execve execveat creat open openat2 rename unlink symlink link mkdir chmod chown truncate memfd_create
pwrite64
socket connect bind sendto sendmsg socketpair kill tkill tgkill rt_sigqueueinfo pidfd_send_signal pidfd_getfd ptrace
process_vm_readv process_vm_writev kcmp shmget shmat msgget semget mq_open add_key request_key keyctl unshare setns
mount
pivot_root chroot prctl seccomp bpf perf_event_open userfaultfd io_uring_setup io_setup vmsplice splice
sched_setaffinity
setpriority setrlimit setuid capset arch_prctl modify_ldt kexec_load init_module reboot personality
"""


@pytest.mark.parametrize("numbers", [X86_64, AARCH64])
def test_nothing_harmful_is_allowed(numbers):
    assert {name for name in HARMFUL.split() if name in numbers} == set()


def test_a_machine_without_numbers_is_refused():
    with pytest.raises(OSError, match="riscv64"):
        instructions("riscv64")
    assert instructions(platform.machine())
