"""Real runs on the oldest OpenRLHF release that the hook works on, with this environment's vLLM, Ray and DeepSpeed."""

import pytest

from restrain_openrlhf.machine.host_releases import Way, supported
from tests.host_releases import python_on

pytestmark = [pytest.mark.host, pytest.mark.e2e, pytest.mark.manual, pytest.mark.timeout(1200)]
RUNS = [
    "tests/e2e/test_training.py::test_an_existing_command_needs_one_module_and_one_flag",
    "tests/e2e/test_agent.py::test_unmodified_openrlhf_trains_with_the_agents_file_alone",
]


def test_the_oldest_release_trains_with_the_hook_and_with_the_agents_file_alone():
    """All other real runs are on the newest release."""
    done = python_on(
        supported(Way.HOOK)[-1], "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", *RUNS
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    assert "2 passed" in done.stdout
