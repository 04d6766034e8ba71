"""The numbers of system calls against the kernel's own headers."""

import platform
import re
from pathlib import Path

import pytest

from restrain_openrlhf.machine.sandbox.system_calls import NUMBERS, instructions

HEADER = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")


@pytest.mark.skipif(not HEADER.is_file(), reason=f"needs {HEADER}: apt-get install linux-libc-dev")
def test_numbers_are_the_kernels():
    found = re.findall(r"#define __NR_(\w+) (\d+)$", HEADER.read_text(), re.MULTILINE)
    kernels = {name: int(number) for name, number in found}
    assert {name: kernels.get(name) for name in NUMBERS} == NUMBERS


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


def test_nothing_harmful_is_allowed():
    assert {name for name in HARMFUL.split() if name in NUMBERS} == set()


def test_a_machine_without_numbers_is_refused():
    with pytest.raises(OSError, match="aarch64"):
        instructions("aarch64")
    assert instructions(platform.machine())
