"""Where --out points: links are written through, and what is no file is refused before anything is computed."""

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.command_line import refused, restrain
from tests.commands.k8s.manifests import needs_kustomize
from tests.conftest import ROOT
from tests.e2e.conftest import small_disk

ROLLOUTS = [{"id": 1, "problem": "p", "responses": [f"so \\boxed{{{n % 3}}}" for n in range(16)]}]
SCORE = ("--method", "restrain", "--set", "prompt_weight=1.0")


@pytest.fixture
def rollouts(write_jsonl):
    return write_jsonl("r.jsonl", ROLLOUTS)


def make(kind, path):
    """Something that is no file, under `path`."""
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "folder":
        path.mkdir()
    else:
        try:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("only root makes device nodes")


@pytest.mark.parametrize("kind", ["fifo", "socket", "device", "folder", "loop"])
def test_what_is_no_file_is_refused_and_stays(rollouts, tmp_path, kind):
    target, link = tmp_path / "target.jsonl", tmp_path / "link.jsonl"
    make(kind, target)
    link.symlink_to(target)
    before = target.lstat()
    for out in (target, link):
        said = refused("score", rollouts, *SCORE, "--out", out)
        assert "not a file that can be written" in said.replace("\n", " ")
    assert (target.lstat().st_mode, target.lstat().st_ino) == (before.st_mode, before.st_ino)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.jsonl", "r.jsonl", "target.jsonl"]


def test_a_link_stays_and_its_target_is_written(rollouts, tmp_path):
    (tmp_path / "data").mkdir()
    target, link = tmp_path / "data" / "scores.jsonl", tmp_path / "link.jsonl"
    link.symlink_to("data/scores.jsonl")
    for _ in ("a new file", "an old one"):
        assert restrain("score", rollouts, *SCORE, "--out", link).returncode == 0
        assert link.is_symlink()
        assert json.loads(target.read_text())["id"] == 1


def test_a_full_disk_is_told_with_the_file_and_keeps_what_was_there(rollouts, tmp_path):
    with small_disk(tmp_path / "disk", 1) as disk:
        out = disk / "scores.jsonl"
        out.write_text("old\n")
        with suppress(OSError):
            (disk / "taken").write_bytes(bytes(2 << 20))
        said = refused("score", rollouts, *SCORE, "--out", out)
        assert f"{out}: No space left on device. Free some space" in said.replace("\n", " ")
        assert sorted(path.name for path in disk.iterdir()) == ["scores.jsonl", "taken"]
        assert out.read_text() == "old\n"


def test_a_full_disk_behind_standard_output_is_told(tmp_path):
    with Path("/dev/full").open("w") as stdout:
        done = into(stdout, "presets", folder=tmp_path)
    assert done.returncode == 2
    assert "error: this command's output" in done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def into(stdout, *words, folder):
    """Runs a command as a process of its own, whose standard output goes to `stdout`."""
    command = [sys.executable, "-m", "restrain_openrlhf.commands.main", *map(str, words)]
    here = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, cwd=folder, env=here
    )  # fmt: skip


def test_a_folder_behind_a_link_is_written_into(tmp_path):
    needs_kustomize()
    link = tmp_path / "link"
    link.symlink_to("real")
    words = ("k8s", "render", "cpu/demo", "--only", "platform", "--overlay", "single-node-8gpu", "--out", link)
    (tmp_path / "real").mkdir()
    assert restrain(*words).returncode == 0
    assert link.is_symlink()
    assert (tmp_path / "real" / "run.sh").is_file()


def test_a_place_below_a_file_is_refused(rollouts):
    for words in (
        ("score", "r.jsonl", *SCORE, "--out", "r.jsonl/scores.jsonl"),
        ("study", "cpu/demo", "--out", "r.jsonl/study"),
        ("show", "r.jsonl/config.yaml"),
    ):
        done = restrain(*words, cwd=rollouts.parent)
        assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert rollouts.read_text().count("\n") == 1


@pytest.fixture
def as_nobody():
    """Runs a command as a user who may read this machine's files and write nowhere: for root nothing is forbidden."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become another user (setpriv)")
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable]
    here = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": "/nonexistent", "MPLCONFIGDIR": "/nonexistent"}

    def run(*words):
        whole = [*command, *map(str, words)]
        return subprocess.run(whole, env=here, cwd="/", capture_output=True, text=True, check=False)

    if run("-c", "import restrain_openrlhf.commands.main").returncode != 0:
        pytest.skip("another user cannot run this environment's Python")
    return lambda *words: run(
        "-m", "test_time.cli" if words[0] == "adapt" else "restrain_openrlhf.commands.main", *words
    )


@pytest.fixture
def readable():
    """A folder that every user may read: pytest's own is its user's."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


PLACES = ("r.jsonl", "secret.yaml", "secret.jsonl", "locked", "open")
WITHOUT_PERMISSION = [
    ("show", "secret.yaml"),
    ("score", "r.jsonl", *SCORE, "--out", "locked/scores.jsonl"),
    ("data", "prepare", "own", "--source", "secret.jsonl", "--out", "open/prompts.jsonl"),
    ("adapt", "--model", "x", "--prompts", "r.jsonl", "--out", "locked/adapted"),
    ("reference", "--model", "x", "--prompts", "r.jsonl", "--out", "locked/reference.jsonl"),
]


def test_without_permission_there_is_a_message(as_nobody, rollouts, readable):
    (readable / "r.jsonl").write_bytes(rollouts.read_bytes())
    for secret in ("secret.yaml", "secret.jsonl"):
        (readable / secret).write_text("run_dir: x\n")
        (readable / secret).chmod(0o600)
    (readable / "locked").mkdir(mode=0o755)
    (readable / "open").mkdir()
    (readable / "open").chmod(0o777)
    for words in WITHOUT_PERMISSION:
        placed = [readable / word if word.partition("/")[0] in PLACES else word for word in map(str, words)]
        done = as_nobody(*placed)
        said = done.stderr.replace("\n", "")
        assert (done.returncode, "Traceback" in said) == (2, False), done.stderr
        forbidden = "locked" if "locked" in str(words) else "secret"
        assert f"{readable}/{forbidden}" in said, words
        assert "this user may not write to" in said or "Permission denied" in said, words
    assert list((readable / "locked").iterdir()) == []
