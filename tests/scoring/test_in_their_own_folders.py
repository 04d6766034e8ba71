"""The tests with TRL and with verl, which the environment lacks: each runs in a process that has it (requirements/)."""

import pytest

from tests.conftest import ROOT
from tests.own_folder import install, python_with

pytest.importorskip("torch", reason="needs the training stack (make install)")

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.mark.parametrize("trainer", ["trl", "verl"])
def test_the_votes_in_another_trainer(trainer):
    folder = ROOT / "build" / trainer
    install(folder, ["--requirement", str(ROOT / "requirements" / f"{trainer}.txt")])
    words = ["-q", "-p", "no:randomly", "-p", "no:cacheprovider", f"tests/scoring/test_{trainer}.py"]
    done = python_with(folder, "-m", "pytest", *words)
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    assert "skipped" not in done.stdout
