"""The reward image's Dockerfile, built without a container engine, started as its uid, asked by its probes."""

import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.commands.k8s.manifests import overlay, pick
from tests.commands.k8s.test_images import pins
from tests.conftest import ROOT
from tests.processes import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(2400)]
BASE, IMAGE, CONTAINER = "localhost/python-base:test", "localhost/restrain-reward:test", "restrain-reward-test"
PACKAGES = "python3,python3-venv,python3-pip,ca-certificates"
OF_THE_INDEX = ("index-url", "extra-index-url", "trusted-host", "proxy", "cert", "default-timeout", "timeout")
Buildah = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def buildah(tmp_path: Path) -> Iterator[Buildah]:
    """buildah with a store of its own, which needs no engine, no registry and no user namespaces."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("buildah", "debootstrap"))):
        pytest.skip("needs root, buildah and debootstrap to build an image without a container engine")
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount, as a root in a container may lack it")
    stores = ["--root", str(tmp_path / "store"), "--runroot", str(tmp_path / "run")]
    environment = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs"}

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        command = ["buildah", *stores, *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)

    try:
        yield run
    finally:
        run("rm", "--all")
        for name in ("store", "rootfs"):  # a gigabyte that pytest would keep
            shutil.rmtree(tmp_path / name, ignore_errors=True)


@pytest.fixture
def image(buildah: Buildah, tmp_path: Path) -> str:
    """The reward image over a Debian with its Python, which stands for the official Python image."""
    root = tmp_path / "rootfs"
    made = subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip(f"no Debian base to be had: {made.stdout[-300:]}")
    for name in ("proc", "sys", "dev"):
        subprocess.run(["umount", "-q", "-R", str(root / name)], check=False)
    archive = tmp_path / "rootfs.tar"
    subprocess.run(
        ["tar", "-C", root, "--one-file-system", "--exclude=./proc/*", "--exclude=./dev/*", "-cf", archive, "."],
        check=True,
    )
    ok(
        buildah("from", "--name", "base", "scratch"),
        buildah("add", "base", archive, "/"),
        buildah("commit", "base", BASE),
    )
    archive.unlink()
    # The builder's own certificates: its way to the package index may be through a proxy.
    volume = "/etc/ssl/certs:/etc/ssl/certs:ro"
    words = ["--file", "docker/reward.Dockerfile", "--pull-never", "--volume", volume, "--tag", IMAGE]
    words += ["--secret", f"id=pip-config,src={pip_config(tmp_path / 'pip.conf')}"]
    ok(buildah("build", *words, "--build-arg", f"BASE_IMAGE={BASE}", "."))
    return IMAGE


def pip_config(path: Path) -> Path:
    """Where pip's index is here, environment included, and how it is reached: an image is built with the same.

    Settings that name this machine's files, such as constraints, mean nothing in the image.
    """
    words = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found = (line.partition("=") for line in done.stdout.splitlines())
    values = {name.rpartition(".")[2]: value.strip("'") for name, _, value in found}
    values = {name: value for name, value in values.items() if name in OF_THE_INDEX and "file:" not in value}
    path.write_text("\n".join(["[global]", *(f"{name} = {value}" for name, value in values.items())]))
    return path


def ok(*done: "subprocess.CompletedProcess[str]") -> None:
    for each in done:
        assert each.returncode == 0, each.stdout[-2000:] + each.stderr[-2000:]


def test_it_holds_the_lock_starts_as_its_uid_and_answers_its_probes(buildah, image, tmp_path):
    inspected = yaml.safe_load(buildah("inspect", "--type", "image", image).stdout)
    assert inspected["OCIv1"]["config"]["User"] == "10001:10001"
    objects = overlay("8xa100-80g")
    container = pick(objects, "Deployment", "reward")["spec"]["template"]["spec"]["containers"][0]
    folder = mounted(objects, tmp_path / "mounted")
    ok(buildah("from", "--pull-never", "--name", CONTAINER, image))
    frozen = buildah("run", CONTAINER, "--", "cat", "/opt/venv/pip-freeze.txt").stdout
    assert installed(frozen) == pins(ROOT / "requirements" / "serve.txt")
    assert buildah("run", CONTAINER, "--", "test", "-e", "/etc/pip.conf").returncode == 1
    port = str(free_port())
    args = [arg.replace("8000", port).replace("0.0.0.0", "127.0.0.1") for arg in container["args"]]
    words = ["--volume", f"{folder}/config:/etc/restrain:ro", "--volume", f"{folder}/token:/run/secrets/reward:ro"]
    command = [
        "buildah",
        "--root",
        str(tmp_path / "store"),
        "--runroot",
        str(tmp_path / "run"),
        "run",
        *words,
        CONTAINER,
    ]
    environment = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs"}
    with (tmp_path / "service.log").open("w") as log:
        service = subprocess.Popen(
            [*command, "--", *container["command"], *args], stdout=log, stderr=log, env=environment
        )
    try:
        probes = [container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")]
        for path in probes:
            assert answers(f"http://127.0.0.1:{port}{path}") == 200, (tmp_path / "service.log").read_text()
        assert process_uids("/opt/venv/bin/restrain") == {10001}
        assert answers(f"http://127.0.0.1:{port}/v1/score", data=b"{}") == 401, "no token was sent"
    finally:
        service.terminate()
        service.wait(60)


def installed(frozen: str) -> dict[str, str]:
    """Packages and versions of `pip freeze`."""
    pairs = (line.partition("==") for line in frozen.splitlines() if "==" in line)
    return {re.sub(r"[-_.]+", "-", name.lower()): version for name, _, version in pairs}


def mounted(objects, folder: Path) -> Path:
    """The configuration and a token, as the pod sees them."""
    (config,) = [each for each in objects if each["kind"] == "ConfigMap" and "reward.yaml" in each["data"]]
    for name, file, text in (
        ("config", "reward.yaml", config["data"]["reward.yaml"]),
        ("token", "token", "0123456789abcdef"),
    ):
        (folder / name).mkdir(parents=True)
        (folder / name / file).write_text(text)
    return folder


def answers(url: str, seconds: float = 60, data: bytes | None = None) -> int:
    """The status of a request, once the service listens."""
    end = time.monotonic() + seconds
    while True:
        try:
            return urllib.request.urlopen(url, data=data, timeout=5).status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


def process_uids(word: str) -> set[int]:
    """Of the processes whose interpreter runs this program."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if len(words) > 1 and words[1] == word.encode() and b"python" in words[0]:
                found.add(folder.stat().st_uid)
        except FileNotFoundError:
            continue
    return found
