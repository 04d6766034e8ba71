"""Limits the files that a program in the sandbox can read to the libraries of the interpreter and the system.

The kernel's Landlock does this without namespaces and for every user, root included. It also denies /proc, which has
the environments of other processes. Kernels before 5.13 lack it. Numbers and structures are from
/usr/include/linux/landlock.h.

Runs inside the sandbox, with only the standard library.
"""

import ctypes
import os
import struct
import sys

# Where the interpreter's libraries may be.
LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache", "/usr/local/lib")
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
PATH_BENEATH = 1
# All rights of Landlock's first version, LANDLOCK_ACCESS_FS_EXECUTE to MAKE_SYM; and the two that are granted.
HANDLED, READ_FILE, READ_DIR = (1 << 13) - 1, 1 << 2, 1 << 3
RULE = struct.Struct("=Qi")
LIBC = ctypes.CDLL(None, use_errno=True)


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
