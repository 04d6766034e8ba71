"""The files that a program in the sandbox can read: the interpreter's and the system's libraries, and no other.

The kernel's Landlock holds this without namespaces and for every user, root included; it also keeps a program out of
/proc, where environments of other processes are. Kernels before 5.13 lack it. Numbers and structures are of
/usr/include/linux/landlock.h.

Runs inside the sandbox, with the standard library alone.
"""

import ctypes
import os
import struct
import sys

# Where the interpreter's own libraries may lie.
LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache", "/usr/local/lib")
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
PATH_BENEATH = 1
# LANDLOCK_ACCESS_FS_EXECUTE to MAKE_SYM, all that its first version knows; of them READ_FILE, and READ_DIR for folders.
HANDLED, READ_FILE, READ_DIR = (1 << 13) - 1, 1 << 2, 1 << 3
RULE = struct.Struct("=Qi")
LIBC = ctypes.CDLL(None, use_errno=True)


def readable_libraries() -> int | None:
    """The descriptor of a set of rules, for `read_no_others`; None where the kernel has no Landlock."""
    rules: int = LIBC.syscall(CREATE_RULESET, struct.pack("Q", HANDLED), 8, 0)
    if rules < 0:
        return None
    for path in (*LIBRARIES, f"{sys.base_prefix}/lib"):
        if os.path.exists(path):
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            may = READ_FILE | READ_DIR if os.path.isdir(path) else READ_FILE
            _done(LIBC.syscall(ADD_RULE, rules, PATH_BENEATH, RULE.pack(may, place), 0))
            os.close(place)
    return rules


def read_no_others(rules: int | None) -> None:
    """For the rest of this process's life. It must have given up new privileges before."""
    if rules is not None:
        _done(LIBC.syscall(RESTRICT_SELF, rules, 0))
        os.close(rules)


def _done(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), "the kernel rejects a Landlock rule")
