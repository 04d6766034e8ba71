"""What programs try against the sandbox, the other programs, and the process that runs them all."""

import os
import platform
import signal
import threading
import time
from pathlib import Path

import pytest

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.machine.sandbox import pool
from restrain_openrlhf.machine.sandbox.system_calls import NUMBERS as CALLS
from restrain_openrlhf.machine.sandbox.system_calls import readable_libraries
from tests.machine.sandbox.jobs import CONFINEMENTS, NO_BUBBLEWRAP, job, outcomes, returning

# Each tries something and returns what it got for it: the exception's name, or what it did. None does harm where the
# sandbox fails, also not as root: signal 0 asks whether a signal may be sent, limits are read, and files are not there.
FORBIDDEN = {
    "fork": "import os\ndef act(): os.fork()",
    "start a program": "import subprocess\ndef act(): subprocess.run(['/bin/true'])",
    "kill what started it": "import os\ndef act(): os.kill(os.getppid(), 0)",
    "kill everything": "import os\ndef act(): os.kill(-1, 0)",
    "a signal by a descriptor": "import fcntl, os\ndef act(): fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())",
    "another's limits": "import resource, os\ndef act(): resource.prlimit(os.getppid(), resource.RLIMIT_CPU)",
    "a socket": "import socket\ndef act(): socket.socket()",
    "write a file": "def act(): open('/tmp/restrain-sandbox-test', 'w')",
    "a file in memory": "import os\ndef act(): os.memfd_create('full')",
    "remove a file": "import os\ndef act(): os.unlink('/tmp/restrain-sandbox-test-0')",
    "a link out": "import os\ndef act(): os.symlink('/etc/shadow', '/tmp/restrain-sandbox-test-1')",
    "shared memory": "from multiprocessing import shared_memory as s\ndef act(): s.SharedMemory('restrain', True, 8)",
    "typing into a terminal": "import fcntl\ndef act(): fcntl.ioctl(0, 0x5412, b'x')",
    "other processors": "import os\ndef act(): os.sched_setaffinity(0, {0})",
    "a priority": "import os\ndef act(): os.nice(-1)",
}
# Landlock alone refuses these without namespaces; of other files a program in `container` can read what the run can.
FILES = {
    "the environment of what started it": "import os\ndef act(): return open(f'/proc/{os.getppid()}/environ').read()",
    "the memory of what started it": "import os\ndef act(): return open(f'/proc/{os.getppid()}/mem', 'rb')",
    "the processes of the machine": "import os\ndef act(): return os.listdir('/proc')",
    "a secret file": "def act(): return open('/etc/shadow').read()",
    "a device": "def act(): return open('/dev/zero', 'rb')",
    "the terminal": "def act(): open('/dev/tty')",
}
TRIES = {name: (source, "PermissionError") for name, source in FORBIDDEN.items()} | {
    "its own limits": ("import resource\ndef act(): resource.setrlimit(resource.RLIMIT_AS, (-1, -1))", "ValueError"),
    "a name server": ("import socket\ndef act(): socket.gethostbyname('example.org')", "gaierror"),
    "huge memory": ("def act(): bytearray(10**11)", "MemoryError"),
    "endless output": ("def act():\n    for _ in range(10**4): print('a' * 1000)", "OSError"),
    "a deep recursion": ("def act(): act()", "RecursionError"),
    "the environment": ("import os\ndef act(): return os.environ['RESTRAIN_TEST_TOKEN']", "KeyError"),
    **({} if readable_libraries() is None else {name: (source, "PermissionError") for name, source in FILES.items()}),
}
CATCH = """
def f(x):
    try:
        return act()
    except Exception as error:
        return type(error).__name__
"""
# What each of these comes to is its own loss.
FAILING = {
    "ends the process": "import os\ndef f(x): os._exit(0)",
    "ends Python": "import sys\ndef f(x): sys.exit(0)",
    "ends Python while it loads": "import sys\nsys.exit(0)",
    "closes everything": "import os\nos.closerange(0, 64)\ndef f(x): return 1",
    "writes into its channel": (
        "import os\ndef f(x):\n    while True:\n        for channel in range(3, 64):\n"
        "            try: os.write(channel, b'x' * 65536)\n            except OSError: pass"
    ),
    "catches the clock": (
        "def f(x):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass"
    ),
    "ignores the clock": (
        "import signal\ndef f(x):\n    signal.signal(signal.SIGPROF, signal.SIG_IGN)\n"
        "    signal.signal(signal.SIGXCPU, signal.SIG_IGN)\n    while True: pass"
    ),
    "a loop within one operation": "def f(x): return 7 ** 7 ** 9",
    "waits for itself": "import threading\ndef f(x):\n    a = threading.Lock()\n    a.acquire()\n    a.acquire()",
    "threads that never end": (
        "import threading\ndef g():\n    while True: pass\ndef f(x):\n"
        "    for i in range(1000): threading.Thread(target=g).start()"
    ),
    "overflows C's stack": (
        "import sys\nsys.setrecursionlimit(10**9)\nclass A:\n"
        "    def __getattr__(self, name): return getattr(self, name)\ndef f(x): return A().b"
    ),
    "returns itself": "def f(x):\n    a = []\n    a.append(a)\n    return a",
    "breaks Python's own names": "import builtins\nbuiltins.len = builtins.str = None\ndef f(x): return 1 + None",
    "no Python": "def f(x: return",
}
if platform.machine() == "x86_64":
    # `mov eax, 20; int 0x80; ret`: getpid by the numbers of 32-bit programs, which would be other calls for the filter.
    FAILING["another machine's system calls"] = (
        "import ctypes, mmap\ndef f(x):\n    code = mmap.mmap(-1, 4096, prot=7)\n"
        "    code.write(bytes([0xB8, 20, 0, 0, 0, 0xCD, 0x80, 0xC3]))\n"
        "    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()"
    )


@pytest.fixture(autouse=True)
def token(monkeypatch):
    monkeypatch.setenv("RESTRAIN_TEST_TOKEN", "secret")


@pytest.mark.parametrize("confinement", CONFINEMENTS)
def test_what_is_tried_is_refused(confinement):
    """In `container` the kernel's filter alone refuses; bubblewrap refuses some of it in another way."""
    got = outcomes(*[job(source + CATCH) for source, _ in TRIES.values()], confinement=confinement)
    wanted = outcomes(*[returning(answer) for _, answer in TRIES.values()], confinement=confinement)
    other = outcomes(returning("OSError"), returning("FileNotFoundError")) if confinement == "bubblewrap" else ()
    refused = {name: got[place] in (wanted[place], *other) for place, name in enumerate(TRIES)}
    assert refused == dict.fromkeys(TRIES, True)


def test_a_program_loses_its_own_answer_alone():
    """Honest programs run before, between and after have the outcomes that they have alone."""
    honest = job("def f(x): return [x, 'y', 2.5]")
    (alone,) = outcomes(honest)
    assert alone[0].startswith("=")
    mixed = outcomes(*[each for source in FAILING.values() for each in (job(source), honest)])
    assert [each == alone for each in mixed[1::2]] == [True] * len(FAILING)
    assert {name: each[0][0] for name, each in zip(FAILING, mixed[::2], strict=True)} == dict.fromkeys(FAILING, "!")


LOOKS = """
import gc, sys
def texts_in(value, depth):
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, (dict, list, tuple)):
        for each in list(value.values()) if isinstance(value, dict) else list(value):
            yield from texts_in(each, depth - 1)
def f(x):
    needle = '-'.join(['of', 'another', 'program'])
    places = [*gc.get_objects(), *(vars(module) for module in list(sys.modules.values()))]
    return any(needle in each for place in places for each in texts_in(place, 2))
"""


def test_a_program_sees_nothing_of_another():
    """The needle is put together by the one that looks for it, so that it does not find itself."""
    hidden = job("def f(x): return 'of-another-program'")
    box = pool.Sandbox("container")
    _, seen, no = (box.run(each) for each in (hidden, job(LOOKS, call_seconds=1.0), returning(False)))
    box.close()
    assert seen == no
    assert no[0].startswith("=")


def test_values_that_lie_are_not_asked():
    """An object of the program's own class has no outcome; a list or text of such a class is read as a plain one."""
    lies = """
class Equal:
    def __eq__(self, other): return True
    def __hash__(self): return 0
    def __repr__(self):
        while True: pass
class Rows(list):
    def __iter__(self):
        while True: yield 1
class Text(str):
    def __str__(self): return 'right'
    def __len__(self): return 10 ** 9
def f(x): return [Equal, Rows, Text][x](*[[]] * (x == 1), *['wrong'] * (x == 2))
"""
    ran, plain, empty = outcomes(job(lies, ["([0], {})", "([1], {})", "([2], {})"]), returning("wrong"), returning([]))
    assert ran[0][0] == "!"
    assert ran[1:] == (*empty, *plain)


@NO_BUBBLEWRAP
def test_no_file_of_this_machine_is_there(tmp_path):
    (tmp_path / "token").write_text("secret")
    source = (
        f"import os\ndef f(x): return [os.path.exists(p) for p in ({str(tmp_path)!r}, {__file__!r}, '/proc', '/dev')]"
    )
    got, nothing = outcomes(job(source), returning([False] * 4), confinement="bubblewrap")
    assert got == nothing


@pytest.mark.parametrize("confinement", CONFINEMENTS)
def test_a_server_that_was_killed_is_replaced(confinement):
    box = pool.Sandbox(confinement)
    assert box.run(job("def f(x): return x")) is not None
    box.process.kill()
    box.process.wait()
    assert box.run(job("def f(x): return x")) is None
    one = pool._Pool(confinement)
    one.local.sandbox = box
    assert one.run(job("def f(x): return x"), time.monotonic() + 60)[0].startswith("=")
    one.local.sandbox.close()


def test_what_comes_back_is_checked():
    """A program may write anything into its own channel."""
    good = b"=" + b"0" * 32 + b"\n"
    assert pool.checked(good * 2, 2) == ("=" + "0" * 32,) * 2
    assert pool.checked(good + b"=zz\n" + good, 3) == ("=" + "0" * 32, "!died", "!died")
    assert pool.checked(good * 5, 1) == ("=" + "0" * 32,)
    assert pool.checked(good[:-1], 1) == ("!died",)
    assert pool.checked("é\n=\x00\n".encode(), 2) == ("!died", "!died")


def test_several_threads_and_a_forked_process_may_ask():
    jobs = [job(f"def f(x): return {number}") for number in range(4)]
    wanted = outcomes(*jobs)
    got = [None] * 4
    threads = [threading.Thread(target=lambda n=n: got.__setitem__(n, outcomes(jobs[n])[0])) for n in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert got == wanted
    child = os.fork()
    if not child:
        os._exit(outcomes(*jobs) != wanted)
    assert os.waitpid(child, 0)[1] == 0


def test_the_time_of_a_group_ends():
    assert pool.run_all([job("def f(x): return x")], "container", -1.0) == [None]


def test_without_bubblewrap_nothing_runs(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match=r"apt-get install bubblewrap.*answers.sandbox: container"):
        pool.command("bubblewrap")


def test_a_sandbox_that_does_not_start_says_why(monkeypatch):
    monkeypatch.setattr(pool, "command", lambda _: ["/bin/sh", "-c", "echo no permission for namespaces >&2; exit 1"])
    with pytest.raises(ConfigError, match="no permission for namespaces"):
        pool.Sandbox("bubblewrap")


NUMBERS = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def f(x):
    passed = []
    for number in x:
        ctypes.set_errno(0)
        if libc.syscall(number, 0, 0, 0, 0, 0, 0) != -1 or ctypes.get_errno() != errno.EPERM:
            passed.append(number)
    return passed
"""


# uretprobe and uprobe of x86_64, which newer kernels keep from every filter (kernel/seccomp.c); they end the program.
UNFILTERED = {335, 336}


def test_every_system_call_that_is_not_allowed_is_refused():
    """x32's numbers included, which an x86_64 kernel may know beside its own."""
    others = sorted({*range(500), 0x40000000 + 57} - set(CALLS.values()) - UNFILTERED)
    got, none = outcomes(job(NUMBERS, [f"([{others}], {{}})"]), returning([]))
    assert got == none


BUSY = """import os, time, threading
wait = threading.Event().wait
def f(x):
    os.closerange(3, 64)
    end = time.monotonic() + 300
    while time.monotonic() < end:
        wait(0.2)
        sum(range(300000))
"""


@pytest.mark.parametrize("confinement", CONFINEMENTS)
def test_what_goes_on_after_its_channel_is_gone_keeps_no_other_waiting(confinement):
    """It computes just enough not to be taken for blocked, and would hold the server for five minutes."""
    box = pool.Sandbox(confinement)
    assert box.run(job(BUSY, call_seconds=60.0, program_seconds=60.0)) == (pool.DIED,)
    begun = time.monotonic()
    one = pool._Pool(confinement)
    one.local.sandbox = box
    assert one.run(job("def f(x): return x"), time.monotonic() + 60)[0].startswith("=")
    assert time.monotonic() - begun < 100
    one.local.sandbox.close()


def test_a_program_ends_with_its_server():
    """Also in `container`, where no namespace ends it: nothing may be left that waits for ever."""
    box = pool.Sandbox("container")
    waits = job("import threading\ndef f(x): threading.Event().wait()", call_seconds=9.0, program_seconds=9.0)
    threading.Thread(target=box.run, args=(waits,), daemon=True).start()
    children, end = Path(f"/proc/{box.process.pid}/task/{box.process.pid}/children"), time.monotonic() + 60
    while not (child := children.read_text().strip()):
        assert time.monotonic() < end, "no program has begun"
    box.process.kill()
    while (state := Path(f"/proc/{child}/stat")).exists() and " Z " not in state.read_text():
        if time.monotonic() > end:
            os.kill(int(child), signal.SIGKILL)
            pytest.fail("it lives on")
        time.sleep(0.05)
