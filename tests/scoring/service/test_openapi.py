"""schemathesis against the running service: the OpenAPI document says what it does, whatever it is sent."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("schemathesis", reason="needs schemathesis (pip install restrain-openrlhf[dev])")

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

TOKEN = "a-token-of-the-tests-0123456789"


def test_schemathesis_finds_nothing(services):
    """Examples of /get_reward wait for groups that never come: the hold is short."""
    service = services.start(token=TOKEN, timing={"hold": 0.05, "retake": 1.5})
    command = [Path(sys.executable).with_name("schemathesis"), "run", f"{service.url}/openapi.json"]
    options = ["--max-examples", "60", "--generation-deterministic", "--workers", "1"]
    header = ["--header", f"Authorization: Bearer {TOKEN}"]
    done = subprocess.run([*map(str, command), *options, *header], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
