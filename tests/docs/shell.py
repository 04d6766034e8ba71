"""A shell for a page's commands: bash reads them, and the project's own programs answer in the test's process.

There a test has replaced what is heavy, and nothing is imported again for each command.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

from tests.command_line import Done

# Stands on PATH as a program: hands its words to the test, and ends as the test says.
ASKS = f"""#!{sys.executable} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({{address!r}})
    asked.sendall(json.dumps([{{name!r}}, sys.argv[1:], os.getcwd(), dict(os.environ)]).encode() + b"\\n")
    status, out, err = json.load(asked.makefile())
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(status)
"""
Program = Callable[[Sequence[str]], Done]


@dataclass
class Shell:
    """`programs` answer here; `scripts` are programs of sh. Both come before all others on PATH."""

    folder: Path
    bin: Path
    programs: Mapping[str, Program]
    scripts: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)
    _exports: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bin.mkdir(parents=True, exist_ok=True)
        self._asked = socket.socket(socket.AF_UNIX)
        # A name that is no file's: a path of a test may be too long for a socket.
        address = f"\0{uuid4()}"
        self._asked.bind(address)
        self._asked.listen()
        self._asked.settimeout(0.02)
        for name in self.programs:
            self._write(name, ASKS.format(address=address, name=name))
        for name, text in self.scripts.items():
            self._write(name, f"#!/bin/sh\n{text}\n")

    def _write(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def type(self, command: str) -> Done:
        """What bash makes of it; a variable that an earlier command exported is still set."""
        path = f"{self.bin}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        script = "\n".join([*self._exports, command])
        with (self.bin / "out").open("w+") as out:
            bash = subprocess.Popen(
                ["bash", "-ec", script],
                cwd=self.folder,
                env={**os.environ, **self.environment, "PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
            while bash.poll() is None:
                self._answer()
            out.seek(0)
            said = out.read()
        self._exports += [command] * command.startswith("export ")
        return Done(bash.returncode, said, "")

    def _answer(self) -> None:
        try:
            asking, _ = self._asked.accept()
        except TimeoutError:
            return
        with asking, asking.makefile("rw") as stream:
            name, words, folder, environment = json.loads(stream.readline())
            here = os.getcwd()
            with patch.dict(os.environ, environment):
                os.chdir(folder)
                try:
                    done = self.programs[name](words)
                finally:
                    os.chdir(here)
            json.dump([done.returncode, done.stdout, done.stderr], stream)
