"""`tools/gpu_trial.sh`: every check can be imported, and one that fails or hangs is a line and stops no other."""

import subprocess
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from restrain_openrlhf.commands.gpu_check import judged
from tests.conftest import ROOT
from tools import gpu_trial

SCRIPT = ROOT / "tools" / "gpu_trial.sh"


def test_each_check_is_a_line_whatever_happens_in_it(tmp_path, monkeypatch, capsys):
    """In processes of their own: the smallest real one passes, one is not found, and one is ended."""
    checks = {
        "kernels": gpu_trial.PARTS["first"]["kernels"],
        "of-no-part": gpu_trial.Check(lambda _: [], 60),
        "never-ends": gpu_trial.Check(lambda _: [], 0.2),
        "late": gpu_trial.Check(lambda _: [], 0),
        "with-a-gpu": gpu_trial.Check(lambda _: [judged("with-a-gpu", True, "")], 60, needs_gpu=True),
    }
    monkeypatch.setattr(gpu_trial, "PARTS", {"first": checks})
    monkeypatch.setattr(gpu_trial, "detect", lambda: SimpleNamespace(has_gpus=False))
    assert not gpu_trial.run_part("first", tmp_path, 600, 1, [])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert ["\n".join(" | ".join(row) for row in rows)] == [(tmp_path / "first.txt").read_text().strip()]
    found = {name: (verdict, said) for name, verdict, said, _ in rows}
    assert found["kernel: sdpa"][0] == found["kernel: torch_flash_attention"][0] == "pass"
    assert found["of-no-part"] == ("fail", "KeyError: 'of-no-part'")
    assert found["never-ends"] == ("fail", "it had not ended after 0 seconds")
    assert found["late"] == ("skipped", "no time was left")
    assert found["with-a-gpu"] == ("skipped", "it needs a GPU")


def test_parts_are_within_their_seconds_and_the_script_names_them():
    text = SCRIPT.read_text()
    for part in gpu_trial.PARTS:
        assert f"  {part}) unpack; checks {part} --seconds " in text
    done = subprocess.run([SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "tools/gpu_trial.sh prepare" in done.stdout


def test_a_piece_that_changed_on_the_way_is_not_unpacked(tmp_path):
    """With a copy of the script, whose working tree is the folder above it. The piece can be unpacked."""
    script, pieces = tmp_path / "tools" / SCRIPT.name, tmp_path / "build" / "gpu_trial" / "pieces"
    for folder in (script.parent, pieces):
        folder.mkdir(parents=True)
    script.write_bytes(SCRIPT.read_bytes())
    (tmp_path / "site").mkdir()
    with tarfile.open(pieces / "site.tar.xz.aa", "w:xz") as changed:
        changed.add(tmp_path / "site", "site")
    (pieces / "SHA256SUMS").write_text(f"{'0' * 64}  site.tar.xz.aa\n")
    done = subprocess.run(["bash", script, "first"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "did NOT match" in done.stderr
    assert not Path(tmp_path, "build", "gpu_trial", "site").exists()
