"""Where --out points: links are written through, and what is no file is refused before anything is computed."""

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from restrain_openrlhf.data.outputs import whole_file
from tests.commands import refused, restrain
from tests.conftest import ROOT

ROLLOUTS = [{"id": 1, "problem": "p", "responses": [f"so \\boxed{{{n % 3}}}" for n in range(16)]}]
SCORE = ("--method", "restrain", "--prompt-weight", "1.0")


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


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("kind", ["fifo", "socket", "device", "folder", "loop"])
def test_what_is_no_file_is_refused_and_stays(rollouts, tmp_path, kind, linked):
    target = tmp_path / "target.jsonl"
    make(kind, target)
    before, out = target.lstat(), target
    if linked:
        out = tmp_path / "link.jsonl"
        out.symlink_to(target)
    for command in (("score", rollouts, *SCORE), ("grade", rollouts), ("merge-reference", rollouts)):
        assert "not a file that can be written" in refused(*command, "--out", out).replace("\n", " ")
    assert (target.lstat().st_mode, target.lstat().st_ino) == (before.st_mode, before.st_ino)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted({"r.jsonl", "target.jsonl", out.name})


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_its_target_is_written(rollouts, tmp_path, there):
    (tmp_path / "data").mkdir()
    target, link = tmp_path / "data" / "scores.jsonl", tmp_path / "link.jsonl"
    if there:
        target.write_text("old\n")
    link.symlink_to("data/scores.jsonl")
    assert restrain("score", rollouts, *SCORE, "--out", link).returncode == 0
    assert link.is_symlink()
    assert json.loads(target.read_text())["id"] == 1


BELOW_A_FILE = [
    ("score", "r.jsonl", *SCORE, "--out", "r.jsonl/scores.jsonl"),
    ("data", "prepare", "own", "--source", "r.jsonl", "--out", "r.jsonl/prompts.jsonl"),
    ("k8s", "render", "dapo14k/qwen3-4b-base/restrain", "--overlay", "8xa100-80g", "--out", "r.jsonl/manifests"),
    ("slurm", "render", "dapo14k/qwen3-4b-base/restrain", "--gpus-per-node", 8, "--out", "r.jsonl/job"),
    ("study", "cpu/demo", "--out", "r.jsonl/study"),
    ("show", "r.jsonl/config.yaml"),
]


@pytest.mark.parametrize("words", BELOW_A_FILE, ids=lambda words: words[0])
def test_a_place_below_a_file_is_refused(rollouts, words):
    done = restrain(*words, cwd=rollouts.parent)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert rollouts.read_text().count("\n") == 1


@pytest.fixture
def as_nobody(tmp_path):
    """Runs a command as a user who may read this machine's files and write nowhere: for root nothing is forbidden."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become another user (setpriv)")
    if not os.access(ROOT, os.R_OK) or ROOT.stat().st_mode & 0o005 != 0o005:
        pytest.skip("the checkout is not readable by other users")
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-m"]

    def run(*words):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": "/nonexistent", "MPLCONFIGDIR": "/nonexistent"}
        done = subprocess.run(
            [*command, "restrain_openrlhf.cli.main", *map(str, words)],
            env=environment, cwd="/", capture_output=True, text=True, check=False,
        )  # fmt: skip
        if "Permission denied" in done.stderr and "restrain_openrlhf" in done.stderr and "Traceback" not in done.stderr:
            pytest.skip("another user cannot run this environment's Python")
        return done

    return run


def test_without_permission_there_is_a_message(as_nobody, rollouts, tmp_path):
    secret = tmp_path / "secret.yaml"
    secret.write_text("run_dir: x\n")
    secret.chmod(0o600)
    (tmp_path / "locked").mkdir(mode=0o755)
    commands = (
        ("show", secret),
        ("score", rollouts, *SCORE, "--out", tmp_path / "locked" / "scores.jsonl"),
        (
            "slurm",
            "render",
            "dapo14k/qwen3-4b-base/restrain",
            "--gpus-per-node",
            8,
            "--out",
            tmp_path / "locked" / "job",
        ),
        ("data", "prepare", "own", "--source", secret, "--out", tmp_path / "locked" / "prompts.jsonl"),
    )
    for words in commands:
        done = as_nobody(*words)
        assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
        assert str(tmp_path) in done.stderr.replace("\n", "")
    assert list((tmp_path / "locked").iterdir()) == []


def test_two_names_of_one_folder_are_one_place(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to("real")
    with whole_file(tmp_path / "alias" / "x") as file:
        file.write("1")
    assert Path(tmp_path / "real" / "x").read_text() == "1"
