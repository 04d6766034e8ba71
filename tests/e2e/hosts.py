"""Hosts on one machine: network namespaces on a bridge, and pods in them with mounts and processes of their own."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

# Names of this process alone: what another one left behind, or uses now, is not in the way. Links have 15 letters.
OURS = f"rs{os.getpid()}"
BRIDGE = f"{OURS}br"
NET = "10.77.0"

# Its own name, /dev/shm, /cache, /tmp/ray and volumes, as a container has. Arguments: the folders of work, of
# configuration and of Ray's logs, then the command.
POD = """
set -e
hostname "$0"
mount -t tmpfs -o size=2g tmpfs /dev/shm
mount -t tmpfs tmpfs /cache && mkdir /cache/home
mkdir -p /tmp/ray "$3" && mount --bind "$3" /tmp/ray
mount -t tmpfs -o size=1m tmpfs /mnt && mkdir /mnt/work && mount --bind "$1" /mnt/work
mount --bind "$2" /etc/restrain
cd /mnt/work
shift 3
exec "$@"
"""


@dataclass(frozen=True)
class Host:
    """A network namespace with one address."""

    name: str
    address: str

    @property
    def namespace(self) -> str:
        return f"{OURS}-{self.name}"

    def run(self, words: Sequence[str], env: Mapping[str, str] | None = None, timeout: float = 60):
        """Run a command in the host's network, and wait for it."""
        return subprocess.run(
            ["ip", "netns", "exec", self.namespace, *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            env={**os.environ, **(env or {})},
        )

    def start_pod(self, words: Sequence[str], work: Path, config: Path, env: Mapping[str, str], log: Path):
        """Start a command as a pod of this host. Killing what is returned kills every process in it."""
        isolate = ["unshare", "-m", "-u", "-p", "-f", "--mount-proc", "--kill-child"]
        command = [
            "ip",
            "netns",
            "exec",
            self.namespace,
            *isolate,
            "bash",
            "-c",
            POD,
            self.name,
            str(work),
            str(config),
            str(log.with_suffix(".ray")),
            *words,
        ]
        with log.open("ab") as file:
            return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, **env})

    def firewall(self, rules: str) -> None:
        """Load nft rules in the host's network; skips where the kernel has none."""
        words = ["ip", "netns", "exec", self.namespace, "nft", "-f", "-"]
        if subprocess.run(words, input="flush ruleset\n", capture_output=True, text=True, check=False).returncode != 0:
            pytest.skip("this kernel takes no nft rules")
        done = subprocess.run(words, input=rules, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + rules


@contextmanager
def hosts(*names: str) -> Iterator[dict[str, Host]]:
    """Hosts that reach each other and nothing else; skips where namespaces or nft are not to be had."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "nft", "unshare"))):
        pytest.skip("needs root, iproute2, nftables and util-linux for hosts in network namespaces")
    with ExitStack() as stack:
        stack.callback(_quiet, "ip", "link", "delete", BRIDGE)
        for words in (
            ["link", "add", BRIDGE, "type", "bridge"],
            ["addr", "add", f"{NET}.254/24", "dev", BRIDGE],
            ["link", "set", BRIDGE, "up"],
        ):
            _ip(*words)
        found = {}
        for number, name in enumerate(names, start=1):
            host = Host(name, f"{NET}.{number}")
            stack.callback(_quiet, "ip", "netns", "delete", host.namespace)
            # By itself it would live on, with the namespace, until the last connection of a killed process times out.
            stack.callback(_quiet, "ip", "link", "delete", f"{OURS}v{number}")
            _connect(host, f"{OURS}v{number}")
            found[name] = host
        for folder in ("/etc/restrain", "/cache"):
            stack.enter_context(_mount_point(Path(folder)))
        yield found


def _connect(host: Host, link: str) -> None:
    _ip("netns", "add", host.namespace)
    _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", host.namespace)
    _ip("link", "set", link, "master", BRIDGE, "up")
    inside = ["-n", host.namespace]
    _ip(*inside, "addr", "add", f"{host.address}/24", "dev", "eth0")
    _ip(*inside, "link", "set", "eth0", "up")
    _ip(*inside, "link", "set", "lo", "up")
    # Programs find their own address by asking for a route to anywhere.
    _ip(*inside, "route", "add", "default", "via", f"{NET}.254")


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"network namespaces are not to be had here: ip {' '.join(words)}: {done.stderr.strip()}")


def _quiet(*words: str) -> None:
    subprocess.run(words, capture_output=True, check=False)


@contextmanager
def _mount_point(folder: Path) -> Iterator[None]:
    """An empty folder for pods to mount on; what they mount is seen by them alone."""
    made = not folder.exists()
    folder.mkdir(exist_ok=True)
    try:
        yield
    finally:
        if made:
            folder.rmdir()
