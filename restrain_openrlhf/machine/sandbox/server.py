"""The server in the sandbox, which forks a child for each program and ends it in time. It never reads a program.

Its standard input is a socket. Each message there is a number of seconds with one descriptor, the program's own
channel. The child reads its job from the channel and answers there. The server closes the channel unread, so that
nothing of one program is in the memory of the next, and keeps no file open that a program could use.

Runs inside the sandbox, with only the standard library.
"""

import gc
import os
import platform
import resource
import signal
import socket
import struct
import sys
import time
from contextlib import suppress

from restrain_openrlhf.machine.sandbox import program
from restrain_openrlhf.machine.sandbox.system_calls import encoded, readable_libraries, restrict_this_process

# What the server sends: READY once it serves, and FREE after each program.
READY, FREE = b"ready", b"."
SECONDS = struct.Struct("d")
# A program that uses less than this share of one core for so long is blocked, even if the machine is busy.
PATIENCE_SECONDS, IDLE_SHARE = 2.0, 0.002


def main() -> None:
    sys.path[:] = [folder for folder in sys.path if not os.path.isdir(os.path.join(folder, "restrain_openrlhf"))]
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    control = socket.socket(fileno=0)
    rules = readable_libraries()
    _try_the_filter(rules)
    os.dup2(1, 2)
    gc.freeze()
    control.send(READY)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, SECONDS.size, 1)
        if not descriptors:
            return
        _serve(control, rules, descriptors[0], *SECONDS.unpack(message))
        control.send(FREE)


def _serve(control: socket.socket, rules: int | None, channel: int, seconds: float) -> None:
    """Run one program, and kill it if it does not end in time."""
    server, child = os.getpid(), os.fork()
    if not child:
        _run(control, rules, channel, server)
    os.close(channel)
    if not _ends(child, time.monotonic() + seconds):
        os.kill(child, signal.SIGKILL)
        signal.sigwait([signal.SIGCHLD])
    os.waitpid(child, 0)


def _ends(child: int, end: float) -> bool:
    """Wait for the child's end. False if the time is over, or the child is blocked and computes nothing."""
    before = -1.0
    # The id of the clock of another process's CPU time, as clock_getcpuclockid(3) makes it.
    clock = (~child << 3) | 2
    while time.monotonic() < end and time.clock_gettime(clock) > before:
        before = time.clock_gettime(clock) + IDLE_SHARE * PATIENCE_SECONDS
        if signal.sigtimedwait([signal.SIGCHLD], PATIENCE_SECONDS):
            return True
    return False


def _run(control: socket.socket, rules: int | None, channel: int, server: int) -> None:
    """In the child, read the job, give up all rights that could do harm, and run the program. Never returns."""
    with suppress(BaseException):
        control.detach()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        job = program.read_job(channel)
        program.prepare_streams()
        _limit(job)
        restrict_this_process(rules)
        # From here on the child ends with the server. If the server has ended already, the child does so itself.
        if os.getppid() == server:
            program.run(job, channel)
    os._exit(0)


def _limit(job: program.Job) -> None:
    """Set soft and hard limits to the same values, so that the program cannot raise them."""
    # This ends a loop inside the interpreter's C code, which no timer interrupts.
    seconds = int(job.program_seconds) + 1
    limits = {
        resource.RLIMIT_AS: job.memory_bytes,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_FSIZE: job.output_bytes,
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_CORE: 0,
    }
    for limit, value in limits.items():
        resource.setrlimit(limit, (value, value))


def _try_the_filter(rules: int | None) -> None:
    """End if the kernel does not accept the filter, without which no program may run."""
    encoded(platform.machine())
    child = os.fork()
    if not child:
        restrict_this_process(rules)
        os._exit(0)
    signal.sigwait([signal.SIGCHLD])
    if os.waitpid(child, 0)[1]:
        sys.exit(1)


if __name__ == "__main__":
    main()
