"""What programs try against the sandbox, the other programs, and the process that runs them all."""

import os
import threading
import time

import pytest

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.machine.sandbox import confinement as confinements
from restrain_openrlhf.machine.sandbox import pool
from tests.sandbox.jobs import CONFINEMENTS, NO_BUBBLEWRAP, job, outcomes, returning

# Each tries something and returns what it got for it: the exception's name, or what it did. None does harm where the
# sandbox fails, also not as root: signal 0 asks whether a signal may be sent, limits are read, and files are not there.
TRIES = {
    "fork": ("import os\ndef act(): os.fork()", "PermissionError"),
    "start a program": ("import subprocess\ndef act(): subprocess.run(['/bin/true'])", "PermissionError"),
    "kill what started it": ("import os\ndef act(): os.kill(os.getppid(), 0)", "PermissionError"),
    "kill everything": ("import os\ndef act(): os.kill(-1, 0)", "PermissionError"),
    "a signal by a descriptor": (
        "import fcntl, os\ndef act(): fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())",
        "PermissionError",
    ),
    "another's limits": (
        "import resource, os\ndef act(): resource.prlimit(os.getppid(), resource.RLIMIT_CPU)",
        "PermissionError",
    ),
    "its own limits": ("import resource\ndef act(): resource.setrlimit(resource.RLIMIT_AS, (-1, -1))", "ValueError"),
    "a socket": ("import socket\ndef act(): socket.socket()", "PermissionError"),
    "a name server": ("import socket\ndef act(): socket.gethostbyname('example.org')", "gaierror"),
    "write a file": ("def act(): open('/tmp/restrain-sandbox-test', 'w')", "PermissionError"),
    "a file in memory": ("import os\ndef act(): os.memfd_create('full')", "PermissionError"),
    "remove a file": ("import os\ndef act(): os.unlink('/tmp/restrain-sandbox-test-0')", "PermissionError"),
    "huge memory": ("def act(): bytearray(10**11)", "MemoryError"),
    "endless output": ("def act():\n    for _ in range(10**4): print('a' * 1000)", "OSError"),
    "a deep recursion": ("def act(): act()", "RecursionError"),
    "the environment": ("import os\ndef act(): return os.environ['RESTRAIN_TEST_TOKEN']", "KeyError"),
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
    "writes into its channel": "import os\ndef f(x):\n    while True:\n        os.write(3, b'x' * 65536)",
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


@pytest.fixture(autouse=True)
def token(monkeypatch):
    monkeypatch.setenv("RESTRAIN_TEST_TOKEN", "secret")


@pytest.mark.parametrize("confinement", CONFINEMENTS)
def test_what_is_tried_is_refused(confinement):
    """In `container` the kernel's filter alone refuses; bubblewrap would refuse some of it in another way."""
    got = outcomes(*[job(source + CATCH) for source, _ in TRIES.values()], confinement=confinement)
    wanted = outcomes(*[returning(answer) for _, answer in TRIES.values()], confinement=confinement)
    other = outcomes(returning("OSError"), returning("FileNotFoundError"), confinement=confinement)
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


def test_a_program_sees_nothing_of_another():
    """The needle is put together by the one that looks for it, so that it does not find itself."""
    hidden = job("def f(x): return 'needle-' + 'of-another-program-0123456789'\n# needle-of-another-program-0123456789")
    looks = """
import ctypes, gc
def f(x):
    needle = bytes([110, 101, 101, 100, 108, 101, 45]) + b'of-' + b'another-' + b'program'
    heap = ctypes.string_at(id(gc) - 4096, 8192)
    whole = [each for each in gc.get_objects() if isinstance(each, (dict, list, tuple))]
    texts = [value for each in whole for value in (each.values() if isinstance(each, dict) else each)]
    return needle in heap or any(needle.decode() in each for each in texts if isinstance(each, str))
"""
    _, seen, no = outcomes(hidden, job(looks, call_seconds=1.0), returning(False))
    assert seen == no


def test_values_that_lie_are_not_asked():
    """`__eq__`, `__hash__` and `__repr__` are the program's own; so are methods of classes made from lists."""
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
    assert ran[0][0] == "="
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
        confinements.command("bubblewrap")


def test_a_sandbox_that_does_not_start_says_why(monkeypatch):
    monkeypatch.setattr(pool, "command", lambda _: ["/bin/sh", "-c", "echo no permission for namespaces >&2; exit 1"])
    with pytest.raises(ConfigError, match="no permission for namespaces"):
        pool.Sandbox("bubblewrap")
