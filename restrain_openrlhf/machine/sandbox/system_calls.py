"""Limits the system calls of a program in the sandbox, and the files that it can read, for the rest of its life.

A program may compute, read files and start threads. It may not start processes, open sockets, write or remove files,
send signals, inspect another process, or change a namespace. The filter holds for every user, root included, and inside
any container, and the program cannot remove it.

It can read the libraries of the interpreter and the system. The kernel's Landlock does this without namespaces. It also
denies /proc, which has the environments of other processes. Kernels before 5.13 lack it. Its numbers and structures are
from /usr/include/linux/landlock.h.

Runs inside the sandbox, with only the standard library.
"""

import ctypes
import errno
import os
import platform
import signal
import struct
import sys
from functools import lru_cache
from typing import Any

# Where the interpreter's libraries may be.
LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache", "/usr/local/lib")
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
PATH_BENEATH = 1
# All rights of Landlock's first version, LANDLOCK_ACCESS_FS_EXECUTE to MAKE_SYM; and the two that are granted.
HANDLED, READ_FILE, READ_DIR = (1 << 13) - 1, 1 << 2, 1 << 3
RULE = struct.Struct("=Qi")
# Linux's numbers on x86_64, from /usr/include/asm/unistd_64.h, and the name of these numbers to a filter.
NUMBERS = {
    "read": 0, "write": 1, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "poll": 7, "lseek": 8, "mmap": 9,
    "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15,
    "pread64": 17, "readv": 19, "writev": 20, "access": 21, "sched_yield": 24, "mremap": 25, "madvise": 28,
    "dup": 32, "dup2": 33, "nanosleep": 35, "getitimer": 36, "setitimer": 38, "getpid": 39, "exit": 60, "uname": 63,
    "ftruncate": 77, "getcwd": 79, "readlink": 89, "gettimeofday": 96, "getrlimit": 97, "getrusage": 98, "sysinfo": 99,
    "times": 100, "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108, "getppid": 110, "sigaltstack": 131,
    "gettid": 186, "time": 201, "futex": 202, "sched_getaffinity": 204, "getdents64": 217, "set_tid_address": 218,
    "clock_gettime": 228, "clock_getres": 229, "clock_nanosleep": 230, "exit_group": 231, "newfstatat": 262,
    "readlinkat": 267, "faccessat": 269, "ppoll": 271, "set_robust_list": 273, "dup3": 292, "getrandom": 318,
    "statx": 332, "rseq": 334, "faccessat2": 439,
    "clone": 56, "fcntl": 72, "ioctl": 16, "openat": 257, "prlimit64": 302, "clone3": 435,
}  # fmt: skip
MACHINE, ARCHITECTURE = "x86_64", 0xC000003E
GUARDED = ("clone", "fcntl", "ioctl", "openat", "prlimit64", "clone3")

CLONE_THREAD = 0x10000
# F_DUPFD to F_SETFL, and F_DUPFD_CLOEXEC. F_SETOWN and F_SETSIG are left out, because they send signals.
DESCRIPTOR_COMMANDS = (0, 1, 2, 3, 4, 1030)
# ioctl: whether a file is a terminal and how large, how much waits to be read, and whether it is closed at exec or
# blocks. TIOCSTI is left out, because it types into a terminal.
DEVICE_COMMANDS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_APPEND, and the bit of O_TMPFILE.
WRITING = 0o1 | 0o2 | 0o100 | 0o1000 | 0o2000 | 0o20000000

LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
NUMBER_AT, MACHINE_AT, ARGUMENTS_AT = 0, 4, 16
KILL, REFUSE, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER_MODE = 1, 38, 22, 2

LIBC = ctypes.CDLL(None, use_errno=True)
INSTRUCTION = struct.Struct("HBBI")
Instruction = tuple[int, int, int, int]


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def restrict_this_process(rules: int | None) -> None:
    """From now on the kernel refuses other system calls, and files that `rules` (`readable_libraries`) do not allow.

    The process also ends with the one that forked it. Raises OSError if the kernel has no such filters.
    """
    code = encoded(platform.machine())
    program = _Filter(len(code) // INSTRUCTION.size, code)
    _control_this_process(PR_SET_PDEATHSIG, signal.SIGKILL, 0)
    _control_this_process(PR_SET_NO_NEW_PRIVS, 1, 0)
    read_no_others(rules)
    _control_this_process(PR_SET_SECCOMP, FILTER_MODE, ctypes.byref(program))


def _control_this_process(option: int, value: int, argument: Any) -> None:
    if LIBC.prctl(option, value, argument, 0, 0):
        raise OSError(ctypes.get_errno(), f"the kernel rejects prctl({option}, {value})")


@lru_cache
def encoded(machine: str) -> bytes:
    """The filter in the kernel's format, cached before a server forks. Raises OSError as `instructions` does."""
    return b"".join(INSTRUCTION.pack(*instruction) for instruction in instructions(machine))


def instructions(machine: str) -> list[Instruction]:
    """The filter for a machine type. Raises OSError for another than x86_64."""
    if machine != MACHINE:
        raise OSError(errno.ENOSYS, f"the system calls of {machine} are not known, only those of {MACHINE}")
    code: list[Instruction] = [
        (LOAD, 0, 0, MACHINE_AT),
        (EQUAL, 1, 0, ARCHITECTURE),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER_AT),
    ]
    for name, number in NUMBERS.items():
        block = _guarded(name) if name in GUARDED else [(RETURN, 0, 0, ALLOW)]
        code += [(EQUAL, 0, len(block), number), *block]
    return [*code, (RETURN, 0, 0, REFUSE | errno.EPERM)]


def _guarded(name: str) -> list[Instruction]:
    """The test of a guarded system call's arguments."""
    allow, refuse = (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE | errno.EPERM)
    match name:
        case "clone":
            return [(LOAD, 0, 0, _argument(0)), (ANY_BIT, 0, 1, CLONE_THREAD), allow, refuse]
        case "clone3":
            # The flags of clone3 are in memory that a filter cannot read. Without clone3 the C library calls clone.
            return [(RETURN, 0, 0, REFUSE | errno.ENOSYS)]
        case "openat":
            return [(LOAD, 0, 0, _argument(2)), (ANY_BIT, 0, 1, WRITING), refuse, allow]
        case "prlimit64":
            return [(LOAD, 0, 0, _argument(0)), (EQUAL, 0, 1, 0), allow, refuse]
        case _:
            commands = DESCRIPTOR_COMMANDS if name == "fcntl" else DEVICE_COMMANDS
            tests = [(EQUAL, len(commands) - place, 0, command) for place, command in enumerate(commands)]
            return [(LOAD, 0, 0, _argument(1)), *tests, refuse, allow]


def _argument(place: int) -> int:
    """The offset of an argument's low half in the data that the kernel hands to a filter."""
    return ARGUMENTS_AT + 8 * place


def readable_libraries() -> int | None:
    """The descriptor of a set of rules for `read_no_others`; None if the kernel has no Landlock."""
    rules: int = LIBC.syscall(CREATE_RULESET, struct.pack("Q", HANDLED), 8, 0)
    if rules < 0:
        return None
    for path in (*LIBRARIES, f"{sys.base_prefix}/lib"):
        if os.path.exists(path):
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            may = READ_FILE | READ_DIR if os.path.isdir(path) else READ_FILE
            _checked(LIBC.syscall(ADD_RULE, rules, PATH_BENEATH, RULE.pack(may, place), 0))
            os.close(place)
    return rules


def read_no_others(rules: int | None) -> None:
    """Apply the rules to this process for the rest of its life. PR_SET_NO_NEW_PRIVS must have been set before."""
    if rules is not None:
        _checked(LIBC.syscall(RESTRICT_SELF, rules, 0))
        os.close(rules)


def _checked(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), "the kernel rejects a Landlock rule")
