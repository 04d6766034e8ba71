"""Confines the sandbox by bubblewrap, or relies on the container that this process runs in."""

import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Literal

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.machine.sandbox.system_calls import LIBRARIES

Confinement = Literal["bubblewrap", "container"]

SERVER = "restrain_openrlhf.machine.sandbox.server"
# The files of this package that the server imports. No others are visible inside.
SERVER_FILES = ("__init__.py", "errors.py", "machine/__init__.py", "machine/sandbox")
INSIDE = "/inside"
# A fixed hash seed gives sets the same order in every run.
ENVIRONMENT = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}


def command(confinement: Confinement) -> list[str]:
    """The command that starts the server. Raises ConfigError if this machine cannot confine it in this way."""
    if platform.system() != "Linux":
        raise ConfigError(
            "The kind of answer `code` runs programs in a sandbox that needs Linux, and this system is "
            f"{platform.system()}. Run on Linux, or choose another kind of answer."
        )
    return _bubblewrap() if confinement == "bubblewrap" else _python()


def environment(confinement: Confinement) -> dict[str, str]:
    """The server's whole environment. Ours is left out, because a program could read a token in it."""
    folder = INSIDE if confinement == "bubblewrap" else str(_package().parent)
    return {**ENVIRONMENT, "PYTHONPATH": folder}


def _bubblewrap() -> list[str]:
    """Separate namespaces; the interpreter and its libraries read-only; no other files, no network, /proc or /dev."""
    wrapper = shutil.which("bwrap")
    if wrapper is None:
        raise ConfigError(
            "The kind of answer `code` runs untrusted programs and confines them with `bwrap`, which is not "
            "installed. Install it (`apt-get install bubblewrap`), or set `answers.sandbox: container` if you trust "
            "the container of this run to confine them."
        )
    prefix, package = Path(sys.base_prefix), _package()
    visible = [*LIBRARIES, f"{prefix}/lib", os.path.realpath(_interpreter())]
    binds = [word for path in dict.fromkeys(visible) for word in ("--ro-bind-try", path, path)]
    if _interpreter() not in visible:
        binds += ["--ro-bind", os.path.realpath(_interpreter()), _interpreter()]
    for name in SERVER_FILES:
        binds += ["--ro-bind", str(package / name), f"{INSIDE}/restrain_openrlhf/{name}"]
    # Each namespace is named, because `--unshare-all` would do without a user namespace if there can be none.
    spaces = [f"--unshare-{name}" for name in ("user", "pid", "net", "ipc", "uts", "cgroup-try")]
    rest = ["--remount-ro", "/", "--chdir", "/", "--new-session", "--die-with-parent", "--cap-drop", "ALL"]
    return [wrapper, *spaces, *binds, *rest, *_python()]


def _python() -> list[str]:
    """The command of the server, without the packages of this environment."""
    return [_interpreter(), "-s", "-S", "-B", "-P", "-m", SERVER]


def _interpreter() -> str:
    """The interpreter that the virtual environment was made from."""
    return str(getattr(sys, "_base_executable", sys.executable))


def _package() -> Path:
    return Path(__file__).parents[2]
